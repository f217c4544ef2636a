// A certified authorization server on this machine: oidc-provider, with a login page that agrees by itself. The client
// `gateway`, whose redirect URI is the third argument, gets a page with a form, on which a person enters a name.
import { createServer } from 'node:http';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import Provider, { errors } from 'oidc-provider';

const port = Number(process.argv[2]); // a free one: the issuer's name has it
const issuer = `http://127.0.0.1:${port}`;
const accessTokens = {
  resourceIndicators: {
    enabled: true,
    defaultResource: () => 'urn:pets',
    useGrantedResource: () => true,
    getResourceServerInfo: (ctx, urn) => ({ scope: 'pets:read pets:write', audience: urn, accessTokenTTL: 3600,
      accessTokenFormat: urn === 'urn:opaque' ? 'opaque' : 'jwt' }),
  },
};
const provider = new Provider(issuer, {
  clients: [
    { client_id: 'cli', token_endpoint_auth_method: 'none', application_type: 'native', redirect_uris: ['http://127.0.0.1/callback'],
      grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'], response_types: ['code'] },
    { client_id: 'machine', client_secret: 's:e/c ret', redirect_uris: [], response_types: [], grant_types: ['client_credentials'] },
    { client_id: 'signer', token_endpoint_auth_method: 'private_key_jwt', token_endpoint_auth_signing_alg: 'ES256', redirect_uris: [],
      response_types: [], grant_types: ['client_credentials'], jwks: { keys: JSON.parse(process.argv[3] ?? '[]') } },
    { client_id: 'exchanger', client_secret: 'e:x/c hange', redirect_uris: [], response_types: [],
      grant_types: ['urn:ietf:params:oauth:grant-type:token-exchange'] },
    ...(process.argv[4] ? [{ client_id: 'gateway', client_secret: 'g:a/t eway', redirect_uris: [process.argv[4]] }] : []),
  ],
  features: {
    devInteractions: { enabled: false }, deviceFlow: { enabled: true }, revocation: { enabled: true }, clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: (ctx, client) => client.clientId === 'machine' }, ...accessTokens,
  },
  scopes: ['openid', 'offline_access'],
  pkce: { required: () => true },
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  cookies: { keys: ['k'] },
  ttl: { Interaction: 60, Session: 60, Grant: 600, DeviceCode: 60 },
});
// Token exchange (RFC 8693), whose policy the server leaves to its operator: a user's token for urn:pets becomes one for urn:orders.
const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
provider.registerGrantType('urn:ietf:params:oauth:grant-type:token-exchange', async (ctx) => {
  const { client, params } = ctx.oidc;
  const verified = await jwtVerify(params.subject_token, keys, { issuer, audience: 'urn:pets' }).catch(() => null);
  if (verified === null || params.audience !== 'urn:orders') throw new errors.InvalidGrant('the subject token is not valid');
  const token = new provider.AccessToken({ accountId: verified.payload.sub, client, gty: 'token_exchange', scope: params.scope });
  const orders = { scope: 'orders:read', audience: 'urn:orders', accessTokenTTL: 600, accessTokenFormat: 'jwt' };
  token.resourceServer = new provider.ResourceServer('urn:orders', orders);
  ctx.body = { access_token: await token.save(), issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    token_type: 'Bearer', expires_in: token.expiration, scope: token.scope };
}, ['subject_token', 'subject_token_type', 'audience', 'scope']);
const server = createServer(async (req, res) => {
  if (req.url.startsWith('/interaction/')) {
    const details = await provider.interactionDetails(req, res);
    if (details.prompt.name === 'login') {
      if (details.params.client_id !== 'gateway') return provider.interactionFinished(req, res, { login: { accountId: 'ann' } });
      if (req.method !== 'POST') {
        res.setHeader('content-type', 'text/html');
        return res.end('<!doctype html><title>Provider</title><form method="post"><input name="user"><button>Log in</button></form>');
      }
      let body = '';
      for await (const part of req) body += part;
      return provider.interactionFinished(req, res, { login: { accountId: new URLSearchParams(body).get('user') } });
    }
    const grant = new provider.Grant({ accountId: details.session?.accountId ?? 'ann', clientId: details.params.client_id });
    grant.addOIDCScope('openid offline_access');
    grant.addResourceScope('urn:pets', 'pets:read pets:write');
    return provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
  }
  return provider.callback()(req, res);
});
server.listen(port, '127.0.0.1', () => console.log(`${issuer} ready`));
process.stdin.resume();
process.stdin.on('end', () => process.exit(0)); // ends with whoever started it
