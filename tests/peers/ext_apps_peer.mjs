// One half of ext-apps over standard input and output: node ext_apps_peer.mjs bridge, the host's, or app, the view's.
// A line of input is a message of the other half, {"message": …}, or a call of a method, {"call": NAME, "params": …}. What it
// causes is printed, a message a line, and then an empty line. NODE_MODULES is the directory of the packages.
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
const load = (path) => import(pathToFileURL(`${process.env.NODE_MODULES}/@modelcontextprotocol/ext-apps/dist/src/${path}`));
console.debug = console.warn = console.error;

const print = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const transport = { start: async () => {}, close: async () => {}, send: async (message) => print(message) };

async function bridge() {
    const { AppBridge } = await load('app-bridge.js');
    const { capabilities, context } = JSON.parse(process.argv[3]);
    const host = new AppBridge(null, { name: 'host', version: '1' }, capabilities, { hostContext: context });
    host.oncalltool = async ({ name, arguments: given }) => {
        if (name === 'broken') throw new Error('broken');
        return { content: [{ type: 'text', text: `${name} ${JSON.stringify(given ?? null)}` }] };
    };
    host.onreadresource = async ({ uri }) => ({ contents: [{ uri, text: 'read' }] });
    host.onopenlink = host.onmessage = host.onupdatemodelcontext = host.ondownloadfile = async () => ({});
    host.onrequestdisplaymode = async ({ mode }) => ({ mode });
    host.onsizechange = host.onloggingmessage = host.onrequestteardown = () => {};
    await host.connect(transport);
    return host;
}

// It uses all that a view has, one after another, and then asks to be removed.
async function app() {
    const { App } = await load('app.js');
    const view = new App({ name: 'view', version: '1' }, { availableDisplayModes: ['inline', 'fullscreen'] }, { autoResize: false });
    const seen = [];
    view.ontoolinputpartial = ({ arguments: given }) => seen.push(['partial', given]);
    view.ontoolinput = ({ arguments: given }) => seen.push(['input', given]);
    view.ontoolcancelled = ({ reason }) => seen.push(['cancelled', reason]);
    view.onhostcontextchanged = (changes) => seen.push(['context', changes]);
    view.ontoolresult = async ({ content }) => {
        const content_of_user = [{ type: 'text', text: 'hello' }];
        seen.push(['result', content]);
        seen.push(['called', await view.callServerTool({ name: 'wind', arguments: { turns: 2 } })]);
        seen.push(['read', await view.readServerResource({ uri: 'file:///a' })]);
        seen.push(['link', await view.openLink({ url: 'https://example.com/' })]);
        seen.push(['message', await view.sendMessage({ role: 'user', content: content_of_user })]);
        seen.push(['model', await view.updateModelContext({ structuredContent: { a: 1 } })]);
        seen.push(['mode', await view.requestDisplayMode({ mode: 'fullscreen' })]);
        seen.push(['download', await view.downloadFile({ contents: [{ type: 'resource_link', uri: 'file:///a', name: 'a' }] })]);
        await view.sendSizeChanged({ width: 300, height: 200 });
        await view.sendLog({ level: 'info', data: seen });
        await view.requestTeardown();
    };
    view.onteardown = async () => ({});
    view.connect(transport).then(() => seen.push(['host', view.getHostVersion(), view.getHostCapabilities(), view.getHostContext()]));
    return view;
}

// Nothing here waits for anything but the other half: all is done when the queue of promises is empty.
const settled = async () => { for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve)); };
const half = await { bridge, app }[process.argv[2]]();
await settled();
process.stdout.write('\n');
for await (const line of createInterface({ input: process.stdin })) {
    const { message, call, params } = JSON.parse(line);
    if (call) Promise.resolve(half[call](params)).catch(() => {});
    else transport.onmessage?.(message);
    await settled();
    process.stdout.write('\n');
}
process.exit();
