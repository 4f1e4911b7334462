// A server and a client of the TypeScript SDK v2: node typescript_peer.mjs server HOW, or client.
// A server is stdio; or http, which prints its URL first; or strict, which is http for stateless clients only. A client reads
// lines, each with a mode, a target and whether to log in as JSON, the target being a URL or the words of a command, and prints
// what it saw of each as JSON. NODE_MODULES is the directory of the packages.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
const load = (path) => import(pathToFileURL(`${process.env.NODE_MODULES}/${path}`));
const [role, how] = process.argv.slice(2);

async function serve() {
    const { McpServer, acceptedContent, createMcpHandler, inputRequired } = await load('@modelcontextprotocol/server/dist/index.mjs');
    const { serveStdio } = await load('@modelcontextprotocol/server/dist/stdio.mjs');
    const { toNodeHandler } = await load('@modelcontextprotocol/node/dist/index.mjs');
    const z = await load('zod/index.js');
    const text = (value) => ({ content: [{ type: 'text', text: value }] });
    const form = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    const factory = () => {
        const server = new McpServer({ name: 'TypeScript', version: '2' });
        const pair = z.object({ a: z.number(), b: z.number() });
        server.registerTool('add', { inputSchema: pair, outputSchema: z.object({ result: z.number() }) }, async ({ a, b }) => ({
            ...text(String(a + b)), structuredContent: { result: a + b },
        }));
        server.registerTool('count', { inputSchema: z.object({ to: z.number() }) }, async ({ to }, ctx) => {
            for (let progress = 1; progress <= to; progress++) {
                const params = { progressToken: ctx.mcpReq._meta.progressToken, progress, total: to, message: `step ${progress}` };
                await ctx.mcpReq.notify({ method: 'notifications/progress', params });
            }
            return text('done');
        });
        server.registerTool('greet', {}, async (ctx) => {
            const answer = acceptedContent(ctx.mcpReq.inputResponses, 'who');
            if (answer !== undefined) return text(`accept ${answer.name}`);
            return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Who are you?', requestedSchema: form }) } });
        });
        server.registerTool('fail', {}, async () => { throw new Error('as it should'); });
        return server;
    };
    if (how === 'stdio') return serveStdio(factory);
    const listener = createServer(toNodeHandler(createMcpHandler(factory, how === 'strict' ? { legacy: 'reject' } : {})));
    listener.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
}

// Logs in without a browser: the authorization server approves at once.
function provider() {
    const kept = {};
    return {
        redirectUrl: 'http://127.0.0.1:1/callback',
        clientMetadata: { client_name: 'TypeScript', redirect_uris: ['http://127.0.0.1:1/callback'] },
        clientInformation: () => kept.client,
        saveClientInformation: (client) => { kept.client = client; },
        tokens: () => kept.tokens,
        saveTokens: (tokens) => { kept.tokens = tokens; },
        discoveryState: () => kept.discovery,
        saveDiscoveryState: (discovery) => { kept.discovery = discovery; },
        codeVerifier: () => kept.verifier,
        saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
        redirectToAuthorization: async (url) => { kept.callback = (await fetch(url, { redirect: 'manual' })).headers.get('location'); },
        callback: () => new URL(kept.callback).searchParams,
    };
}

async function report(mode, target, login) {
    const { Client, StreamableHTTPClientTransport, UnauthorizedError } = await load('@modelcontextprotocol/client/dist/index.mjs');
    const { StdioClientTransport } = await load('@modelcontextprotocol/client/dist/stdio.mjs');
    const versionNegotiation = { mode: mode.startsWith('2') ? { pin: mode } : mode };
    const client = new Client({ name: 'TypeScript', version: '2' }, { capabilities: { elicitation: { form: {} } }, versionNegotiation });
    const asked = [];
    client.setRequestHandler('elicitation/create', async (request) => {
        asked.push(request.params.message);
        return { action: 'accept', content: { name: 'Ada' } };
    });
    const progress = [];
    const onprogress = (step) => progress.push([step.progress, step.total, step.message]);
    let transport = target[0].startsWith('http')
        ? new StreamableHTTPClientTransport(new URL(target[0]))
        : new StdioClientTransport({ command: target[0], args: target.slice(1) });
    if (login) {
        const authProvider = provider();
        const first = new StreamableHTTPClientTransport(new URL(target[0]), { authProvider });
        const refused = await client.connect(first).catch((error) => error);
        if (!(refused instanceof UnauthorizedError)) throw refused ?? new Error('connected without a login');
        await first.finishAuth(authProvider.callback());
        transport = new StreamableHTTPClientTransport(new URL(target[0]), { authProvider });
    }
    await client.connect(transport);
    const listed = await client.listTools();
    const added = await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } });
    const counted = await client.callTool({ name: 'count', arguments: { to: 3 } }, { onprogress });
    const greeted = await client.callTool({ name: 'greet', arguments: {} });
    const failed = await client.callTool({ name: 'fail', arguments: {} });
    const unknown = await client.callTool({ name: 'none', arguments: {} }).then((result) => result.isError, (error) => error.code);
    const seen = {
        revision: client.getNegotiatedProtocolVersion(),
        server: client.getServerVersion()?.name,
        tools: listed.tools.map((tool) => tool.name).sort(),
        added: added.structuredContent,
        counted: counted.content[0].text,
        progress,
        asked,
        greeted: greeted.content[0].text,
        failed: [failed.isError, failed.content[0].text],
        unknown,
    };
    await client.close();
    return seen;
}

if (role === 'server') await serve();
else for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await report(...JSON.parse(line))));
