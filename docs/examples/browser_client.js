// A client for pages, over WebSocket: const client = await Client.open("ws://localhost:8000/mcp");
export class Client {
  #socket;
  #waiting = new Map();
  #id = 0;

  static async open(url) {
    const client = new Client();
    const socket = (client.#socket = new WebSocket(url, "mcp"));
    socket.onmessage = ({ data }) => client.#hear(JSON.parse(data));
    await new Promise((opened, failed) => {
      socket.onopen = opened;
      socket.onclose = ({ code, reason }) => {
        failed(new Error(`no connection to ${url}`));
        client.#waiting.forEach((call) => call.reject(new Error(`the connection ended: ${code} ${reason}`)));
      };
    });
    const clientInfo = { name: "a page", version: "1.0" };
    client.server = await client.ask("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo });
    client.tell("notifications/initialized");
    return client;
  }

  ask(method, params = {}, onProgress = () => {}) {
    const id = ++this.#id;
    return new Promise((resolve, reject) => {
      this.#say({ id, method, params: { ...params, _meta: { progressToken: id } } });
      this.#waiting.set(id, { resolve, reject, onProgress });
    });
  }

  tell(method, params = {}) {
    this.#say({ method, params });
  }

  close() {
    this.#socket.close(1000);
  }

  #say(message) {
    if (this.#socket.readyState !== WebSocket.OPEN) throw new Error("the connection is over");
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  #hear({ id, method, params, result, error }) {
    if (method === "ping") this.#say({ id, result: {} });
    else if (method === "notifications/progress") this.#waiting.get(params.progressToken)?.onProgress(params);
    else if (method && id !== undefined) this.#say({ id, error: { code: -32601, message: "a page cannot do that" } });
    else if (!method) {
      const call = this.#waiting.get(id);
      this.#waiting.delete(id);
      error ? call?.reject(new Error(`${error.message} (${error.code})`)) : call?.resolve(result);
    }
  }
}
