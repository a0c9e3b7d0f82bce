package config

import (
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/beacon"
)

func TestTheBeaconIsQuicknetUnlessTheSettingsSayOtherwise(t *testing.T) {
	required(t)
	s, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	chain, err := s.Beacon.Chain()
	if err != nil || chain.Hash() != beacon.Quicknet().Hash() {
		t.Errorf("the chain is %+v, %v", chain, err)
	}
	if !s.Beacon.Default || !s.Beacon.Enabled() || len(s.Beacon.URLs()) != 4 || s.Beacon.Timeout != 5*time.Second {
		t.Errorf("got %+v", s.Beacon)
	}
}

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
		"one twice":                  {file: "relays: 'https://one.example,https://one.example/'", want: []string{"beacon.relays", "twice"}},
		"with a password":            {file: "relays: https://me:hunter2@one.example", want: []string{"beacon.relays", "without a user"}},
		"with a query":               {file: "relays: 'https://one.example?x=1'", want: []string{"beacon.relays"}},
		"seventeen":                  {file: "relays: 'https://" + strings.Repeat("x.example,https://", 16) + "y.example'", want: []string{"beacon.relays", "at most 16"}},
		"no time":                    {file: "timeout: 0s", want: []string{"beacon.timeout", "at least 10ms"}},
		"another period":             {file: "period: 30s", want: []string{"beacon.chain_hash", "are those of the chain"}},
		"half a second more":         {file: "period: 3500ms", want: []string{"beacon.period", "whole seconds"}},
		"another genesis":            {file: "genesis_time: 1692803368", want: []string{"beacon.chain_hash"}},
		"another name":               {file: "beacon_id: default", want: []string{"beacon.chain_hash"}},
		"another seed":               {file: "genesis_seed: '" + strings.Repeat("00", 32) + "'", want: []string{"beacon.chain_hash"}},
		"half a seed":                {file: "genesis_seed: '" + strings.Repeat("00", 16) + "'", want: []string{"32 bytes, not 16"}},
		"no key":                     {file: "public_key: '" + strings.Repeat("00", 96) + "'", want: []string{"beacon.public_key"}},
		"a key that is no hex":       {file: "public_key: quicknet", want: []string{"beacon.public_key", "hex digits"}},
		"a hash that is none":        {file: "chain_hash: '52db'", want: []string{"beacon.chain_hash"}},
		"a hash in capitals":         {file: "chain_hash: 52DB9BA70E0CC0F6EAF7803DD07447A1F5477735FD3F661792BA94600C84E971", want: []string{"beacon.chain_hash"}},
	} {
		t.Run(name, func(t *testing.T) {
			required(t)
			s, err := Load(write(t, "beacon:\n  "+c.file+"\n"))
			if c.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				for _, url := range s.Beacon.URLs() {
					if strings.HasSuffix(url, "/") || strings.Contains(url, " ") {
						t.Errorf("got %q", url)
					}
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q repeats the password", err)
			}
		})
	}
}
