import { pathToFileURL } from 'node:url';
// Usage: NODE_MODULES=DIRECTORY node oidc_provider.mjs; DPOP_NONCE=1 asks for nonces. Prints the issuer.
const { Provider } = await import(pathToFileURL(process.env.NODE_MODULES + '/oidc-provider/lib/index.js'));
import http from 'node:http';
const port = Number(process.argv[2] || 0);
const probe = http.createServer(); 
const actual = await new Promise(r => probe.listen(port, '127.0.0.1', () => { const p = probe.address().port; probe.close(() => r(p)); }));
const issuer = `http://127.0.0.1:${actual}`;
const provider = new Provider(issuer, {
  clients: [{ client_id: 'm2m', client_secret: 'm2m-secret-m2m-secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [], token_endpoint_auth_method: 'client_secret_basic' }],
  scopes: ['openid', 'offline_access', 'mcp:basic', 'mcp:write'],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: { AccessToken: 60, ClientCredentials: 60, RefreshToken: 600, DeviceCode: 600, Interaction: 600, Grant: 600, Session: 600, AuthorizationCode: 60, IdToken: 60 },
  issueRefreshToken: async (ctx, client, code) => client.grantTypeAllowed('refresh_token') && code.scopes.has('offline_access'),
  features: {
    registration: { enabled: true, initialAccessToken: false },
    registrationManagement: { enabled: false },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    introspection: { enabled: true },
    revocation: { enabled: true },
    dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 1), requireNonce: () => process.env.DPOP_NONCE === '1' },
    clientIdMetadataDocument: { enabled: true, ack: process.env.CIMD_ACK || undefined },
    resourceIndicators: {
      enabled: true,
      defaultResource: async () => undefined,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (ctx, resource) => ({ scope: 'mcp:basic mcp:write', audience: resource, accessTokenTTL: 60, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } }),
    },
  },
  jwks: { keys: [ (await (async () => { const { generateKeyPair, exportJWK } = await import(pathToFileURL(process.env.NODE_MODULES + '/jose/dist/webapi/index.js')); const { privateKey } = await generateKeyPair('ES256', { extractable: true }); return { ...(await exportJWK(privateKey)), use: 'sig', alg: 'ES256', kid: 'k1' }; })()) , (await (async () => { const { generateKeyPair, exportJWK } = await import(pathToFileURL(process.env.NODE_MODULES + '/jose/dist/webapi/index.js')); const { privateKey } = await generateKeyPair('RS256', { extractable: true }); return { ...(await exportJWK(privateKey)), use: 'sig', alg: 'RS256', kid: 'k2' }; })()) ] },
});
provider.listen(actual, '127.0.0.1', () => console.log(issuer));
