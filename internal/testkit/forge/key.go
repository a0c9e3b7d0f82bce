package forge

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/asn1"
	"fmt"
	"math/big"
	"sync"
)

var (
	oidRSA       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	oidEC        = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	oidRSAWith   = map[crypto.Hash]asn1.ObjectIdentifier{crypto.SHA1: {1, 2, 840, 113549, 1, 1, 5}, crypto.SHA256: {1, 2, 840, 113549, 1, 1, 11}, crypto.SHA384: {1, 2, 840, 113549, 1, 1, 12}, crypto.SHA512: {1, 2, 840, 113549, 1, 1, 13}}
	oidECDSAWith = map[crypto.Hash]asn1.ObjectIdentifier{crypto.SHA1: {1, 2, 840, 10045, 4, 1}, crypto.SHA256: {1, 2, 840, 10045, 4, 3, 2}, crypto.SHA384: {1, 2, 840, 10045, 4, 3, 3}, crypto.SHA512: {1, 2, 840, 10045, 4, 3, 4}}
	oidHashes    = map[crypto.Hash]asn1.ObjectIdentifier{crypto.SHA1: {1, 3, 14, 3, 2, 26}, crypto.SHA256: {2, 16, 840, 1, 101, 3, 4, 2, 1}, crypto.SHA384: {2, 16, 840, 1, 101, 3, 4, 2, 2}, crypto.SHA512: {2, 16, 840, 1, 101, 3, 4, 2, 3}}
	oidCurves    = map[elliptic.Curve]asn1.ObjectIdentifier{elliptic.P224(): {1, 3, 132, 0, 33}, elliptic.P256(): {1, 2, 840, 10045, 3, 1, 7}, elliptic.P384(): {1, 3, 132, 0, 34}, elliptic.P521(): {1, 3, 132, 0, 35}}
)

// Key is a key that certificates have.
type Key interface {
	public() (algorithm, key []byte)                   // of the SubjectPublicKeyInfo
	algorithm(crypto.Hash) []byte                      // of a signature
	sign(hash crypto.Hash, digest []byte) (sig []byte) // of a digest
}

// keys are made once: it takes long.
var (
	keysMu sync.Mutex
	keys   = make(map[string]Key)
)

func kept(name string, create func() Key) Key {
	keysMu.Lock()
	defer keysMu.Unlock()
	if keys[name] == nil {
		keys[name] = create()
	}
	return keys[name]
}

// EC returns the key of a name on a curve.
func EC(curve elliptic.Curve, name string) Key {
	return kept(curve.Params().Name+" "+name, func() Key {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err)
		}
		return ecKey{key}
	})
}

type ecKey struct{ *ecdsa.PrivateKey }

func (k ecKey) public() (algorithm, key []byte) {
	point, err := k.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	return TLV(tagSequence, oid(oidEC), oid(oidCurves[k.Curve])), point
}

func (k ecKey) algorithm(hash crypto.Hash) []byte {
	return TLV(tagSequence, oid(oidECDSAWith[hash]))
}

func (k ecKey) sign(_ crypto.Hash, digest []byte) []byte {
	sig, err := ecdsa.SignASN1(rand.Reader, k.PrivateKey, digest)
	if err != nil {
		panic(err)
	}
	return sig
}

// RSA returns the key of some bits and an exponent. An even modulus is 2 times a prime.
func RSA(size int, exponent int64, even bool) Key {
	return kept(fmt.Sprint("RSA ", size, exponent, even), func() Key {
		for {
			if k, ok := newRSA(size, big.NewInt(exponent), even); ok {
				return k
			}
		}
	})
}

// rsaKey is computed by hand: crypto/rsa refuses to make and use what tests need.
type rsaKey struct{ n, e, d *big.Int }

// newRSA multiplies primes of about 1,024 bits: large ones would take minutes. The last is such
// that the modulus has its length.
func newRSA(size int, e *big.Int, even bool) (k rsaKey, ok bool) {
	const length = 1024
	n, order, one := big.NewInt(1), big.NewInt(1), big.NewInt(1)
	if even {
		n = big.NewInt(2)
	}
	with := func(p *big.Int) {
		n.Mul(n, p)
		order.Mul(order, new(big.Int).Sub(p, one))
	}
	for size-n.BitLen() > length+64 {
		p, err := rand.Prime(rand.Reader, length)
		if err != nil {
			panic(err)
		}
		with(p)
	}
	least := new(big.Int).Div(new(big.Int).Lsh(one, uint(size-1)), n) // and less than twice that
	last := big.NewInt(0)
	for !last.ProbablyPrime(1) || last.Cmp(least) <= 0 {
		random, err := rand.Int(rand.Reader, least)
		if err != nil {
			panic(err)
		}
		last.Add(least, random).SetBit(last, 0, 1)
	}
	with(last)
	d := new(big.Int).ModInverse(e, order)
	return rsaKey{n, e, d}, d != nil && n.BitLen() == size
}

func (k rsaKey) public() (algorithm, key []byte) {
	return TLV(tagSequence, oid(oidRSA), null), TLV(tagSequence, marshal(k.n), marshal(k.e))
}

func (k rsaKey) algorithm(hash crypto.Hash) []byte {
	return TLV(tagSequence, oid(oidRSAWith[hash]), null)
}

// sign is PKCS #1 v1.5.
func (k rsaKey) sign(hash crypto.Hash, digest []byte) []byte {
	size := (k.n.BitLen() + 7) / 8
	block := make([]byte, size)
	block[1] = 1
	end := TLV(tagSequence, TLV(tagSequence, oid(oidHashes[hash]), null), TLV(tagOctets, digest))
	for i := 2; i < size-len(end)-1; i++ {
		block[i] = 0xff
	}
	copy(block[size-len(end):], end)
	return new(big.Int).Exp(new(big.Int).SetBytes(block), k.d, k.n).FillBytes(make([]byte, size))
}

var null = []byte{5, 0}

func digestOf(hash crypto.Hash, message []byte) []byte {
	h := hash.New()
	h.Write(message)
	return h.Sum(nil)
}
