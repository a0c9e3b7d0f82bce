// Package accounts simulates an OpenID provider. It signs in whoever a test names, redeems a code once, checks PKCE, and can
// be made to answer wrongly.
package accounts

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// ClientID and Secret are those of the one client.
const (
	ClientID = "triprize"
	Secret   = "the secret of the client"
)

// Provider is an OpenID provider. Change its exported fields under Do only.
type Provider struct {
	URL    string
	server *httptest.Server
	key    *rsa.PrivateKey

	mu    sync.Mutex
	codes map[string]grant

	Person   jwt.MapClaims                                     // who is signed in at the provider; nil: nobody
	Token    func(claims jwt.MapClaims, header map[string]any) // changes an ID token before it is signed; nil: nothing
	Sign     func(token *jwt.Token) (string, error)            // signs it instead; nil: as it should be
	Answer   map[string]http.HandlerFunc                       // by path, instead of its own
	Requests map[string]int                                    // by path
}

type grant struct {
	query  url.Values
	person jwt.MapClaims
}

// New starts a provider, and ends it with the test.
func New(t testing.TB) *Provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{key: key, codes: make(map[string]grant), Answer: make(map[string]http.HandlerFunc), Requests: make(map[string]int)}
	own := map[string]http.HandlerFunc{"/.well-known/openid-configuration": p.discovery, "/keys": p.keys, "/authorize": p.authorize, "/token": p.token}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.Requests[r.URL.Path]++
		handle := p.Answer[r.URL.Path]
		p.mu.Unlock()
		if handle == nil {
			handle = own[r.URL.Path]
		}
		if handle == nil {
			handle = http.NotFound
		}
		handle(w, r)
	}))
	p.URL = p.server.URL
	t.Cleanup(p.server.Close)
	return p
}

// Do changes the provider.
func (p *Provider) Do(change func(p *Provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// Count returns how many requests a path has had.
func (p *Provider) Count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Requests[path]
}

func send(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document)
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	send(w, http.StatusOK, map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "end_session_endpoint": p.URL + "/logout", "id_token_signing_alg_values_supported": []string{"RS256"},
		"authorization_response_iss_parameter_supported": true})
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	encode := base64.RawURLEncoding.EncodeToString
	send(w, http.StatusOK, map[string]any{"keys": []map[string]string{{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1",
		"n": encode(p.key.N.Bytes()), "e": encode([]byte{1, 0, 1})}}})
}

// authorize sends the browser back, signed in as Person without being asked.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	back := url.Values{"state": {query.Get("state")}, "iss": {p.URL}}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case query.Get("client_id") != ClientID || query.Get("code_challenge_method") != "S256" || query.Get("response_type") != "code":
		back.Set("error", "invalid_request")
	case p.Person == nil:
		back.Set("error", "login_required")
	default:
		code := rand.Text()
		p.codes[code] = grant{query, p.Person}
		back.Set("code", code)
	}
	http.Redirect(w, r, query.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound) //nolint:gosec // tests name it
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if id == "" {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if id, _ = url.QueryUnescape(id); id != ClientID {
		send(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	if secret, _ = url.QueryUnescape(secret); secret != Secret {
		send(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	given, ok := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || given.query.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) || given.query.Get("redirect_uri") != r.FormValue("redirect_uri") {
		send(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	now := time.Now()
	claims := jwt.MapClaims{"iss": p.URL, "aud": ClientID, "nonce": given.query.Get("nonce"), "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
	for name, value := range given.person {
		claims[name] = value
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = "1"
	if p.Token != nil {
		p.Token(claims, token.Header)
	}
	sign := func(t *jwt.Token) (string, error) { return t.SignedString(p.key) }
	if p.Sign != nil {
		sign = p.Sign
	}
	text, err := sign(token)
	if err != nil {
		send(w, http.StatusInternalServerError, map[string]string{"error": "server_error"})
		return
	}
	send(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 60, "id_token": text})
}
