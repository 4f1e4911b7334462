// A client on version 2 of the official SDK for TypeScript that calls a tool as fast as it can, in a session. Prints a JSON
// object, as clients.py does: calls a second, and microseconds of processor time a call, for each number of callers.
//
//     MCPIO_PEERS_DIR=… node benchmarks/peers/typescript_client.mjs SECONDS 1,64 COMMAND...
//     MCPIO_PEERS_DIR=… node benchmarks/peers/typescript_client.mjs SECONDS 1,16,64 http://127.0.0.1:8000/mcp
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const modules = path.join(path.resolve(process.env.MCPIO_PEERS_DIR), 'node_modules/@modelcontextprotocol/client/dist');
const load = file => import(pathToFileURL(path.join(modules, file)).href);
const { Client, StreamableHTTPClientTransport } = await load('index.mjs');
const { StdioClientTransport } = await load('stdio.mjs');

const [seconds, numbers, ...target] = process.argv.slice(2);
const client = new Client({ name: 'benchmark', version: '1' }, { versionNegotiation: { mode: 'legacy' } });
await client.connect(target[0].startsWith('http')
    ? new StreamableHTTPClientTransport(new URL(target[0]))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env }));

async function rate(callers, limit) {
    let done = 0;
    const cpu = process.cpuUsage(), began = performance.now();
    const caller = async () => {
        while (!done || performance.now() < began + limit * 1000) {
            const result = await client.callTool({ name: 'echo', arguments: { text: 'hello' } });
            if (result.content[0].text !== 'hello') throw new Error('not what was asked for');
            done++;
        }
    };
    await Promise.all(Array.from({ length: callers }, caller));
    const used = process.cpuUsage(cpu);
    return [done / (performance.now() - began) * 1000, (used.user + used.system) / done];
}

const figures = {};
await rate(1, seconds / 7);  // to warm up
for (const callers of numbers.split(',').map(Number)) {
    [figures[`${callers}/s`], figures[`${callers} CPU`]] = await rate(callers, Number(seconds));
}
console.log(JSON.stringify(figures));
await client.close();
process.exit();
