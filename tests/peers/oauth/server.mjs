// A certified authorization server on this machine: oidc-provider, with a login page that agrees by itself.
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const port = Number(process.argv[2]); // a free one: the issuer's name has it
const issuer = `http://127.0.0.1:${port}`;
const accessTokens = {
  resourceIndicators: {
    enabled: true,
    defaultResource: () => 'urn:pets',
    useGrantedResource: () => true,
    getResourceServerInfo: () => ({ scope: 'pets:read pets:write', audience: 'urn:pets', accessTokenTTL: 3600, accessTokenFormat: 'jwt' }),
  },
};
const provider = new Provider(issuer, {
  clients: [
    { client_id: 'cli', token_endpoint_auth_method: 'none', application_type: 'native', redirect_uris: ['http://127.0.0.1/callback'],
      grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'], response_types: ['code'] },
    { client_id: 'machine', client_secret: 's:e/c ret', redirect_uris: [], response_types: [], grant_types: ['client_credentials'] },
    { client_id: 'signer', token_endpoint_auth_method: 'private_key_jwt', token_endpoint_auth_signing_alg: 'ES256', redirect_uris: [],
      response_types: [], grant_types: ['client_credentials'], jwks: { keys: JSON.parse(process.argv[3] ?? '[]') } },
  ],
  features: {
    devInteractions: { enabled: false }, deviceFlow: { enabled: true }, revocation: { enabled: true }, clientCredentials: { enabled: true },
    introspection: { enabled: false }, ...accessTokens,
  },
  scopes: ['openid', 'offline_access'],
  pkce: { required: () => true },
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  cookies: { keys: ['k'] },
  ttl: { Interaction: 60, Session: 60, Grant: 600, DeviceCode: 60 },
});
const server = createServer(async (req, res) => {
  if (req.url.startsWith('/interaction/')) {
    const details = await provider.interactionDetails(req, res);
    if (details.prompt.name === 'login') return provider.interactionFinished(req, res, { login: { accountId: 'ann' } });
    const grant = new provider.Grant({ accountId: 'ann', clientId: details.params.client_id });
    grant.addOIDCScope('openid offline_access');
    grant.addResourceScope('urn:pets', 'pets:read pets:write');
    return provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
  }
  return provider.callback()(req, res);
});
server.listen(port, '127.0.0.1', () => console.log(`${issuer} ready`));
process.stdin.resume();
process.stdin.on('end', () => process.exit(0)); // ends with whoever started it
