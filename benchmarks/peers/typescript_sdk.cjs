// The echo server on the official SDK for TypeScript, over standard input and output, or over HTTP at every path.
//
//     MCPIO_PEERS_DIR=… node benchmarks/peers/typescript_sdk.cjs
//     MCPIO_PEERS_DIR=… node benchmarks/peers/typescript_sdk.cjs --http 8000 [--sse]
//
// The directory is where npm has installed what tests/peers/package.json names.
'use strict';
const { randomUUID } = require('node:crypto');
const http = require('node:http');
const { createRequire } = require('node:module');
const path = require('node:path');
const { parseArgs } = require('node:util');

const installed = createRequire(path.join(path.resolve(process.env.MCPIO_PEERS_DIR), 'package.json'));
const { Server } = installed('@modelcontextprotocol/sdk/server/index.js');
const { StdioServerTransport } = installed('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = installed('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { CallToolRequestSchema, ListToolsRequestSchema } = installed('@modelcontextprotocol/sdk/types.js');

const options = parseArgs({ options: { http: { type: 'string' }, sse: { type: 'boolean' } } }).values;
const inputSchema = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const names = ['echo'];
for (let number = 1; number < Number(process.env.BENCH_TOOLS ?? 1); number++) names.push(`tool_${number}`);
const tools = names.map(name => ({ name, description: 'Echo the text back to the caller.', inputSchema }));
const transports = new Map();

// A session has a server of its own: that is how the SDK has it.
function echoServer() {
    const server = new Server({ name: 'echo', version: '1' }, { capabilities: { tools: {} } });
    server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools }));
    server.setRequestHandler(CallToolRequestSchema, async request => ({
        content: [{ type: 'text', text: request.params.arguments.text }]
    }));
    return server;
}

async function connect() {
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        enableJsonResponse: !options.sse,
        onsessioninitialized: id => transports.set(id, transport)
    });
    transport.onclose = () => transports.delete(transport.sessionId);
    await echoServer().connect(transport);
    return transport;
}

if (options.http === undefined) {
    echoServer().connect(new StdioServerTransport());
} else {
    http.createServer(async (request, response) => {
        const id = request.headers['mcp-session-id'];
        const transport = id === undefined ? await connect() : transports.get(id);
        if (transport === undefined) {
            response.writeHead(404).end();
        } else {
            await transport.handleRequest(request, response);
        }
    }).listen(Number(options.http), '127.0.0.1');
}
