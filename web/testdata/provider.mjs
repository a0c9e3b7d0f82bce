// Runs npm's oidc-provider with its own pages of sign-in, where any password will do. The part of a name before the @ is the
// person's group. argv: where its module is, the port, the address to which the one client sends a browser back, and the one after a sign-out.
const [, , library, port, callback, signedOut] = process.argv;
const { default: Provider } = await import(library);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: "triprize", client_secret: "a secret of the client", redirect_uris: [callback], post_logout_redirect_uris: [signedOut] }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  scopes: ["openid", "email", "profile", "groups"],
  conformIdTokenClaims: false, // the ID token has the claims
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: id, email_verified: true, groups: [id.split("@")[0]] }) }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
