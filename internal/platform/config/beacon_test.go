package config

import (
	"strings"
	"testing"
)

// quicknetInfo is what relays of drand answer at /info, but for fields that nobody reads.
const quicknetInfo = `{"public_key":"83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",` +
	`"period":3,"genesis_time":1692803367,"hash":"52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",` +
	`"groupHash":"f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e","schemeID":"bls-unchained-g1-rfc9380","metadata":{"beaconID":"quicknet"}}`

func TestTheSettingsOfABeaconFitTogether(t *testing.T) {
	const off = "default: false\n  "
	for name, c := range map[string]struct {
		file string
		want []string // nil: accepted
	}{
		"no relays":                  {file: off + "relays: ''"},
		"blank relays":               {file: off + "relays: ' '"},
		"no relays, but the default": {file: "relays: ''", want: []string{"beacon.default (TRIPRIZE_BEACON_DEFAULT)", "beacon.relays names no relay"}},
		"one relay":                  {file: "relays: https://one.example"},
		"relays with paths":          {file: "relays: ' https://one.example/drand/ , https://two.example:8443 '"},
		"on this machine":            {file: "relays: 'http://127.0.0.1:1,http://localhost:2,http://[::1]:3'"},
		"elsewhere, without TLS":     {file: "relays: http://one.example", want: []string{"beacon.relays", "must be https://"}},
		"another scheme":             {file: "relays: ftp://one.example", want: []string{"beacon.relays", "URLs separated by commas"}},
		"an empty one":               {file: "relays: 'https://one.example,'", want: []string{"beacon.relays", "URLs separated by commas"}},
		"one twice":                  {file: "relays: 'https://one.example,https://one.example/'", want: []string{"beacon.relays", "different"}},
		"with a password":            {file: "relays: https://me:hunter2@one.example", want: []string{"beacon.relays", "without a user"}},
		"with a query":               {file: "relays: 'https://one.example?x=1'", want: []string{"beacon.relays"}},
		"seventeen":                  {file: "relays: 'https://" + strings.Repeat("x.example,https://", 16) + "y.example'", want: []string{"beacon.relays", "at most 16"}},
		"quicknet, in full":          {file: "chain: '" + quicknetInfo + "'"},
		"another period":             {file: "chain: '" + strings.Replace(quicknetInfo, `"period":3`, `"period":30`, 1) + "'", want: []string{"beacon.chain (TRIPRIZE_BEACON_CHAIN)", "are those of the chain"}},
		"half a second more":         {file: "chain: '" + strings.Replace(quicknetInfo, `"period":3`, `"period":3.5`, 1) + "'", want: []string{"beacon.chain", "/info"}},
		"another genesis":            {file: "chain: '" + strings.Replace(quicknetInfo, "1692803367", "1692803368", 1) + "'", want: []string{"beacon.chain", "are those of the chain"}},
		"another name":               {file: "chain: '" + strings.Replace(quicknetInfo, `"quicknet"`, `"default"`, 1) + "'", want: []string{"are those of the chain"}},
		"another seed":               {file: "chain: '" + strings.Replace(quicknetInfo, "f477", "f478", 1) + "'", want: []string{"are those of the chain"}},
		"half a seed":                {file: "chain: '" + strings.Replace(quicknetInfo, "f477d5c89f21a17c863a7f937c6a6d15", "", 1) + "'", want: []string{"32 bytes, not 16"}},
		"no key":                     {file: "chain: '" + strings.Replace(quicknetInfo, "83cf", "00cf", 1) + "'", want: []string{"beacon.chain"}},
		"a key that is no hex":       {file: "chain: '" + strings.Replace(quicknetInfo, "83cf", "quic", 1) + "'", want: []string{"public_key must be hex digits"}},
		"no chain":                   {file: "chain: quicknet", want: []string{"beacon.chain", "must be JSON"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := loads(t, "beacon:\n  "+c.file+"\n", c.want...)
			for _, url := range s.Beacon.URLs() {
				if c.want == nil && (strings.HasSuffix(url, "/") || strings.Contains(url, " ")) {
					t.Errorf("got %q", url)
				}
			}
		})
	}
}
