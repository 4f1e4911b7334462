// The connection to the backend: JSON-RPC over one WebSocket, with the secret of the address.

export class Backend {
  #socket;
  #waiting = new Map();
  #id = 0;
  onclose = () => {};

  static async open(secret) {
    const backend = new Backend();
    const url = `ws://${location.host}/mcp?token=${encodeURIComponent(secret)}`;
    const socket = (backend.#socket = new WebSocket(url, "mcp"));
    socket.onmessage = ({ data }) => backend.#hear(JSON.parse(data));
    await new Promise((opened, failed) => {
      socket.onopen = opened;
      socket.onclose = () => {
        failed(new Error("The inspector does not answer at this address."));
        backend.#waiting.forEach((call) => call.reject(new Error("the inspector ended")));
        backend.onclose();
      };
    });
    const clientInfo = { name: "mcpio inspect: page", version: "1" };
    await backend.#ask("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo }).answer;
    backend.#say({ method: "notifications/initialized" });
    return backend;
  }

  // Returns the answer; `cancel` of it takes the question back.
  ask(method, params = {}) {
    const { id, answer } = this.#ask(`inspect/${method}`, params);
    answer.cancel = () => this.#say({ method: "notifications/cancelled", params: { requestId: id } });
    return answer;
  }

  #ask(method, params) {
    const id = ++this.#id;
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.#say({ id, method, params });
    return { id, answer };
  }

  #say(message) {
    if (this.#socket.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    }
  }

  #hear({ id, method, result, error }) {
    if (method === "ping") this.#say({ id, result: {} });
    if (method) return;
    const call = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) call?.reject(Object.assign(new Error(error.message), { code: error.code }));
    else call?.resolve(result);
  }
}
