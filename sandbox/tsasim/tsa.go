package tsasim

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Options say what the authority is like. The zero value is RSA, a root that signs the
// signer's certificate itself, valid for years, and tokens without an accuracy.
type Options struct {
	ECDSA        bool   // P-256 keys; otherwise RSA
	Intermediate bool   // a certificate between root and signer
	Expired      bool   // the signer's certificate is of 2020
	Accuracy     string // as openssl writes it, such as "secs:1, millisecs:500"
	Digits       int    // of the fraction of a second in tokens, at most 6
	WithoutRoot  bool   // tokens without any certificate but the signer's
	Number       int    // authorities that differ in nothing else have other keys
}

// Authority is a running authority.
type Authority struct {
	URL   string
	Chain string   // file: root certificate first, then the intermediate, in PEM
	Root  [32]byte // SHA-256 of the root certificate

	dir     string
	options Options
	one     sync.Mutex // openssl counts serial numbers in a file
}

var (
	madeMu sync.Mutex
	made   = make(map[Options]map[string]string) // the files of an authority, by name
)

// Start serves until the test ends. Authorities of the same options have the same keys
// and certificates: to make them takes openssl longer than most tests.
func Start(t testing.TB, o Options) *Authority {
	t.Helper()
	_ = os.Getenv("TRIPRIZE_TEST_RUN") // Go's cache of results does not see openssl
	a := &Authority{dir: t.TempDir(), options: o}
	madeMu.Lock()
	defer madeMu.Unlock()
	if made[o] == nil {
		a.make(t)
		files := make(map[string]string)
		for _, name := range []string{"tokens.txt", "root.pem", "signer.pem", "signer.key", "chain.pem", "tsa.cnf"} {
			files[name] = string(a.read(t, name))
		}
		made[o] = files
	} else {
		for name, text := range made[o] {
			a.write(t, name, text)
		}
	}
	a.Chain = filepath.Join(a.dir, "chain.pem")
	block, _ := pem.Decode(a.read(t, "root.pem"))
	a.Root = sha256.Sum256(block.Bytes)

	server := httptest.NewServer(http.HandlerFunc(a.answer))
	t.Cleanup(server.Close)
	a.URL = server.URL
	return a
}

// make makes keys and certificates.
func (a *Authority) make(t testing.TB) {
	t.Helper()
	o := a.options
	a.write(t, "ca.cnf", caConfig)
	a.write(t, "root.ext", "[req]\ndistinguished_name=dn\nprompt=no\nx509_extensions=v3\n[dn]\nCN=Root\n[v3]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n")
	a.write(t, "ca.ext", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n")
	a.write(t, "signer.ext", "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=critical,timeStamping\nsubjectKeyIdentifier=hash\n")
	a.write(t, "index.txt", "")
	a.write(t, "serial.txt", "1000\n")
	a.write(t, "tokens.txt", "01\n")

	a.key(t, "root")
	a.openssl(t, "req", "-x509", "-new", "-key", "root.key", "-sha256", "-days", "7300", "-config", "root.ext", "-out", "root.pem")
	issuer, chain := "root", a.read(t, "root.pem")
	if o.Intermediate {
		a.certify(t, "between", "root", "ca.ext", "20200101000000Z", "20400101000000Z")
		issuer = "between"
		chain = append(chain, a.read(t, "between.pem")...)
	}
	from, to := "20200101000000Z", "20400101000000Z"
	if o.Expired {
		to = "20200201000000Z"
	}
	a.certify(t, "signer", issuer, "signer.ext", from, to)
	a.write(t, "chain.pem", string(chain))
	a.write(t, "tsa.cnf", a.config())
}

const caConfig = `[ca]
default_ca = d
[d]
database = index.txt
serial = serial.txt
new_certs_dir = .
default_md = sha256
policy = p
unique_subject = no
rand_serial = yes
[p]
commonName = supplied
`

func (a *Authority) config() string {
	lines := []string{"[t]", "serial = tokens.txt", "signer_cert = signer.pem", "signer_key = signer.key", "signer_digest = sha256",
		"default_policy = 1.2.3.4.1", "digests = sha256, sha512", "ess_cert_id_alg = sha256", fmt.Sprintf("clock_precision_digits = %d", a.options.Digits)}
	if a.options.Accuracy != "" {
		lines = append(lines, "accuracy = "+a.options.Accuracy)
	}
	if !a.options.WithoutRoot {
		lines = append(lines, "certs = chain.pem")
	}
	return strings.Join(lines, "\n") + "\n"
}

// answer is POST of a query.
func (a *Authority) answer(w http.ResponseWriter, r *http.Request) {
	query, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply, err := a.Reply(query)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/timestamp-reply")
	_, _ = w.Write(reply)
}

// Reply returns the response to a query, both in DER.
func (a *Authority) Reply(query []byte) ([]byte, error) {
	a.one.Lock()
	defer a.one.Unlock()
	if err := os.WriteFile(filepath.Join(a.dir, "query"), query, 0o600); err != nil {
		return nil, err
	}
	if out, err := a.run("ts", "-reply", "-config", "tsa.cnf", "-section", "t", "-queryfile", "query", "-out", "reply"); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(filepath.Join(a.dir, "reply"))
}

// Verify lets openssl check a token over a digest, as a second opinion.
func (a *Authority) Verify(t testing.TB, token []byte, digest [32]byte) error {
	t.Helper()
	a.one.Lock()
	defer a.one.Unlock()
	a.write(t, "token", string(token))
	out, err := a.run("ts", "-verify", "-digest", fmt.Sprintf("%x", digest), "-in", "token", "-token_in", "-CAfile", "root.pem")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (a *Authority) key(t testing.TB, name string) {
	t.Helper()
	if a.options.ECDSA {
		a.openssl(t, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", name+".key")
	} else {
		a.openssl(t, "genrsa", "-out", name+".key", "2048")
	}
}

// certify makes a key, and a certificate of it by an issuer.
func (a *Authority) certify(t testing.TB, name, issuer, extensions, from, to string) {
	t.Helper()
	a.key(t, name)
	a.openssl(t, "req", "-new", "-key", name+".key", "-subj", "/CN="+name, "-out", name+".csr", "-config", "root.ext")
	a.openssl(t, "ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", issuer+".pem", "-keyfile", issuer+".key",
		"-in", name+".csr", "-out", name+".pem", "-startdate", from, "-enddate", to, "-extfile", extensions)
}

func (a *Authority) run(args ...string) ([]byte, error) {
	c := exec.Command("openssl", args...)
	c.Dir = a.dir
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

func (a *Authority) openssl(t testing.TB, args ...string) {
	t.Helper()
	if out, err := a.run(args...); err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (a *Authority) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *Authority) read(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
