// Skills with the TypeScript SDK v2: node typescript_skills.mjs server FOLDER serves them over standard input and output;
// node typescript_skills.mjs client MODE COMMAND ... uses those of a server, and prints what it got as JSON. NODE_MODULES is
// the directory of the packages.
import { pathToFileURL } from 'node:url';
const load = (path) => import(pathToFileURL(`${process.env.NODE_MODULES}/@modelcontextprotocol/${path}`));
const [role, first, ...rest] = process.argv.slice(2);

async function serve(folder) {
    const { McpServer } = await load('server/dist/index.mjs');
    const { serveStdio } = await load('server/dist/stdio.mjs');
    const { loadSkills } = await load('server/dist/ext/skills/node.mjs');
    const skills = await loadSkills(folder, { prefix: 'acme', pageSize: 2 });
    await serveStdio(() => {
        const server = new McpServer({ name: 'TypeScript', version: '2' });
        skills.attach(server);
        return server;
    });
}

async function use(mode, [command, ...args]) {
    const { Client } = await load('client/dist/index.mjs');
    const { StdioClientTransport } = await load('client/dist/stdio.mjs');
    const { SkillsClient } = await load('client/dist/ext/skills/index.mjs');
    const versionNegotiation = { mode: mode.startsWith('2') ? { pin: mode } : mode };
    const client = new Client({ name: 'TypeScript', version: '2' }, { versionNegotiation });
    await client.connect(new StdioClientTransport({ command, args }));
    const skills = new SkillsClient(client);
    const listing = await skills.list();
    const found = {};
    for (const entry of listing.skills) {
        const files = {};
        const own = Array.isArray(entry.resources) ? entry.resources.map((file) => file.uri) : [entry.uri];
        for (const uri of own) {
            const file = await skills.read(entry, uri);
            files[uri] = { base64: Buffer.from(file.bytes).toString('base64'), verified: file.verified, type: file.mimeType };
        }
        found[entry.uri] = { entry, files, again: (await skills.get(entry.uri)).skill, body: (await skills.read(entry)).body };
    }
    const directory = await skills.readDirectory(listing.skills[0].uri.replace(/\/SKILL\.md$/, ''));
    const unknown = await skills.get('skill://none/SKILL.md').then(() => null, (error) => error.code);
    const unlisted = await skills.read(listing.skills[0], 'other.md').then(() => null, (error) => error.reason);
    const said = { revision: client.getNegotiatedProtocolVersion(), found, directory: directory.resources, unknown, unlisted };
    said.supported = [skills.supported, skills.directoryRead];
    await client.close();
    return said;
}

if (role === 'server') await serve(first);
else console.log(JSON.stringify(await use(first, rest)));
