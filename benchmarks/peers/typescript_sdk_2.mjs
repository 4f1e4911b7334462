// The echo server on version 2 of the official SDK for TypeScript, in both eras: over standard input and output, or over HTTP at
// every path.
//
//     MCPIO_PEERS_DIR=… node benchmarks/peers/typescript_sdk_2.mjs
//     MCPIO_PEERS_DIR=… node benchmarks/peers/typescript_sdk_2.mjs --http 8000
//
// The directory is where npm has installed what tests/peers/package.json names.
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const installed = createRequire(path.join(path.resolve(process.env.MCPIO_PEERS_DIR), 'package.json'));
const from = name => import(pathToFileURL(installed.resolve(name)).href);
const { McpServer, createMcpHandler } = await from('@modelcontextprotocol/server');
const { serveStdio } = await from('@modelcontextprotocol/server/stdio');
const { toNodeHandler } = await from('@modelcontextprotocol/node');
const z = await from('zod');

const options = parseArgs({ options: { http: { type: 'string' } } }).values;
const names = ['echo'];
for (let number = 1; number < Number(process.env.BENCH_TOOLS ?? 1); number++) names.push(`tool_${number}`);
const inputSchema = z.object({ text: z.string() });

function echoServer() {
    const server = new McpServer({ name: 'echo', version: '1' });
    const tool = { description: 'Echo the text back to the caller.', inputSchema };
    for (const name of names) server.registerTool(name, tool, async ({ text }) => ({ content: [{ type: 'text', text }] }));
    return server;
}

if (options.http === undefined) {
    serveStdio(echoServer);
} else {
    http.createServer(toNodeHandler(createMcpHandler(echoServer))).listen(Number(options.http), '127.0.0.1');
}
