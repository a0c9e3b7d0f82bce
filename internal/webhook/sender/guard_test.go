package sender

import (
	"net/netip"
	"strings"
	"testing"
)

func guard(t *testing.T, networks string) Guard {
	t.Helper()
	g, err := NewGuard(networks)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// private are addresses that no stranger may name, in every form.
var private = []string{
	"127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.2.1",
	"198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
	"168.63.129.16", "100.100.100.200", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::1",
	"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:8.8.8.8", "::8.8.8.8", "::127.0.0.1", "64:ff9b:1::808:808", "2002:808:808::1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1",
	"2002:7f00:1::1", "2002:a00:1::1", "2001::1", "2001:db8::1", "fc00::1", "fd00:ec2::254", "fe80::1", "ff02::1", "100::1",
}

func TestNoFormOfAPrivateAddressIsAllowed(t *testing.T) {
	t.Parallel()
	g := guard(t, "")
	for _, text := range private {
		if g.allows(netip.MustParseAddr(text), false) {
			t.Errorf("%s is allowed", text)
		}
	}
	for _, text := range []string{"8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"} {
		at := netip.MustParseAddr(text)
		if !g.allows(at, false) {
			t.Errorf("%s is refused", text)
		}
		if g.allows(at, true) {
			t.Errorf("%s is allowed without TLS", text)
		}
	}
	if (Guard{}).allows(netip.MustParseAddr("8.8.8.8"), false) {
		t.Error("the zero value allows something")
	}
}

func TestOnlyNamedNetworksAreAllowedBesides(t *testing.T) {
	t.Parallel()
	g := guard(t, "127.0.0.0/8, fd00::/8")
	for text, want := range map[string]bool{"127.0.0.1": true, "fd00::1": true, "10.0.0.1": false, "::1": false, "::ffff:127.0.0.1": true, "64:ff9b::7f00:1": true, "64:ff9b::a00:1": false, "fe80::1%eth0": false} {
		at := netip.MustParseAddr(text)
		if g.allows(at, true) != want || g.allows(at, false) != want {
			t.Errorf("%s is allowed: %v", text, !want)
		}
	}
	wide := guard(t, "0.0.0.0/0, ::/0, 100.64.0.0/10, 168.63.0.0/16, 169.254.0.0/16, 64:ff9b:1:8::/64")
	for _, host := range []string{
		"100.100.100.200", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe", "168.63.129.16", "169.254.169.254", "169.254.170.2",
		"::ffff:168.63.129.16", "::ffff:169.254.169.254", "::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:8:a9:fea9:fe00:0", "64:ff9b:1:8::a9fe:a9fe",
		"2002:a9fe:a9fe::1", "2001:0:808:808::5601:5601", "2001:0:a9fe:a9fe::f7f7:f7f7", "2606:4700::5efe:169.254.169.254", "2606:4700::200:5efe:169.254.169.254",
	} {
		if at := netip.MustParseAddr(host); wide.allows(at, false) || wide.allows(at, true) || wide.CheckURL("https://"+netip.AddrPortFrom(at, 443).String()+"/") == nil {
			t.Errorf("%s, at which a cloud answers its machines, is allowed", host)
		}
	}
	for text, networks := range map[string]string{ // a translator's prefix is named: what it sends to is judged, and is not named by that
		"64:ff9b:1::808:808": "64:ff9b:1::/96", "64:ff9b:1:808:8:800::": "64:ff9b:1::/48", "64:ff9b:1:8:8:808::": "64:ff9b:1::/56", "64:ff9b:1:0:8:808:800:0": "64:ff9b:1::/64", "64:ff9b::808:808": "64:ff9b::/96",
	} {
		if at, g := netip.MustParseAddr(text), guard(t, networks); !g.allows(at, false) || g.allows(at, true) || g.Named("https://["+text+"]/") {
			t.Errorf("%s behind %s is not judged as 8.8.8.8", text, networks)
		}
	}
	for _, wrong := range []string{"127.0.0.1", "127.0.0.1/8", "loopback", "10.0.0.0/33"} {
		if _, err := NewGuard(wrong); err == nil {
			t.Errorf("%q was taken for networks", wrong)
		}
	}
}

func TestAURLThatCanNeverBeReachedIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	g, loopback := guard(t, ""), guard(t, "127.0.0.0/8")
	for _, url := range []string{
		"https://shop.example/hooks?x=1", "https://shop.example:8443", "https://8.8.8.8/", "https://[2606:4700:4700::1111]/", "https://xn--bcher-kva.example/",
		"https://0xshop.example", "https://shop.1x",
	} {
		if err := g.CheckURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	wrong := []string{
		"", "shop.example", "ftp://shop.example", "http://shop.example", "https:shop.example", "https://", "https://u:p@shop.example", "https://u@shop.example",
		"https://shop.example/#x", "https://shop.example:25", "https://shop.example:22", "https://shop.example:0", "https://shop.example:65536", "https://shop.example:x",
		"https://localhost", "https://LOCALHOST.", "https://a.localhost/", "https://2130706433/", "https://0x7f000001/", "https://127.1/", "https://0177.0.0.1/",
		"https://[fe80::1%25eth0]/", "https://shop..", "https://.", "https://shop.example/" + strings.Repeat("x", maxURLLength), "https://exa\x00mple/",
	}
	for _, address := range private {
		if strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
		wrong = append(wrong, "https://"+address+"/")
	}
	for _, url := range wrong {
		if err := g.CheckURL(url); err == nil {
			t.Errorf("%s is accepted", url)
		}
	}
	for _, url := range []string{"http://localhost:3000/hooks", "http://127.0.0.1:3000", "https://127.0.0.1", "http://shop.example"} {
		if err := loopback.CheckURL(url); err != nil {
			t.Errorf("with loopback allowed, %s: %v", url, err)
		}
	}
	if err := loopback.CheckURL("http://8.8.8.8/"); err == nil {
		t.Error("http is accepted to a public address")
	}
}
