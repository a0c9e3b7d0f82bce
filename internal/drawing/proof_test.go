package drawing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

func drawn(t *testing.T, db *pgxpool.Pool, ref job.Ref) {
	t.Helper()
	drawer := drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, drawing.DrawerOptions{}, servers.Logger(t))
	if outcome, err := drawer.Run(t.Context(), ref); err != nil || outcome.Problem != nil {
		t.Fatal(outcome.Problem, err)
	}
}

func written(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (tag string, text []byte) {
	t.Helper()
	document, err := drawing.NewProofs(db).Document(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := document.Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return document.Tag, out.Bytes()
}

// parsed reads a document, and its list as a tree.
func parsed(t *testing.T, text []byte) (p fairdraw.Proof, tree fairdraw.Tree) {
	t.Helper()
	p, err := fairdraw.ReadProof(bytes.NewReader(text), tree.Append)
	if err != nil {
		t.Fatal(err)
	}
	return p, tree
}

func purchases(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (all []purchase.Purchase) {
	t.Helper()
	ids, err := postgres.Collect(t.Context(), db, pgx.RowTo[uuid.UUID], `SELECT id FROM purchases WHERE campaign_id = $1 ORDER BY id`, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range ids {
		all = append(all, purchaseOf(t, db, one))
	}
	return all
}

func purchaseOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) purchase.Purchase {
	t.Helper()
	p, err := purchase.Get(t.Context(), db, access.Everything(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAProofHasAllThatRedoesTheDrawAndIsTheSameBytesForEver(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(50)) // 1,275 lines: two subtrees
	drawn(t, db, fixture.SellOut(t, db, id))
	tag, text := written(t, db, id)
	if again, same := written(t, db, id); again != tag || !bytes.Equal(same, text) {
		t.Error("another reading has other bytes")
	}
	p, tree := parsed(t, text)
	if tree.Root() != p.Root || tree.Count() != p.Count || p.Count != 1275 {
		t.Errorf("%d lines have the root %s, the document says %d with %s", tree.Count(), tree.Root(), p.Count, p.Root)
	}
	if got := fairdraw.Commitment(id, p.Rules, p.Secret[:]); got != [32]byte(p.Commitment) {
		t.Error("rules and secret are not what was committed to")
	}
	record, err := p.Record().Canonical()
	if err != nil || fairdraw.FreezeHash(record) != p.FreezeHash {
		t.Errorf("the freeze hash is not that of the record: %v", err)
	}
	var rules fairdraw.Rules
	if err := json.Unmarshal(p.Rules, &rules); err != nil {
		t.Fatal(err)
	}
	var sold []fairdraw.SoldLine
	if _, err := fairdraw.ReadProof(bytes.NewReader(text), func(l fairdraw.SoldLine) error { sold = append(sold, l); return nil }); err != nil {
		t.Fatal(err)
	}
	selected := fairdraw.Winners(fairdraw.Select(rules.Prizes, sold, fairdraw.NewStream(fairdraw.Entropy(p.Secret[:], id, p.Root, nil))))
	if want, _ := json.Marshal(selected); !bytes.Contains(text, want[1:len(want)-1]) && len(selected) != len(p.Winners) {
		t.Errorf("other winners: %s", want)
	}
	if strings.Contains(string(text), "buyer-") {
		t.Error("the document has names of buyers")
	}
	now, err := drawing.ProofStateOf(t.Context(), db, id)
	if err != nil || now.Draw == nil || *now.Progress.FreezeHash != p.FreezeHash || now.Freeze.Root != p.Root || now.Trust != fairdraw.TrustOperator {
		t.Errorf("the draw shows %+v, %v", now, err)
	}
}

func TestAListThatIsNotTheFrozenOneHasNoProof(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	drawn(t, db, fixture.SellOut(t, db, id))
	_, right := written(t, db, id)
	fixture.TamperList(t, db, id)
	service := drawing.NewProofs(db)
	document, err := service.Document(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	list, err := service.List(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var proofText, listText bytes.Buffer
	for out, d := range map[*bytes.Buffer]*drawing.Proof{&proofText: document, &listText: list} {
		if err := d.Write(t.Context(), out); !errors.Is(err, drawing.ErrNotFrozenList) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := fairdraw.ReadProof(&proofText, func(fairdraw.SoldLine) error { return nil }); err == nil {
		t.Error("what was written can be read as a whole proof")
	}
	if _, err := fairdraw.ReadList(&listText, func(fairdraw.SoldLine) error { return nil }); err == nil {
		t.Error("what was written can be read as a whole list")
	}
	for _, p := range purchases(t, db, id) { // nobody gets a path in a tree that is not the frozen one
		if _, err := service.Purchase(t.Context(), p); !errors.Is(err, drawing.ErrNotFrozenList) {
			t.Errorf("purchase %s: %v", p.ID, err)
		}
	}
	fixture.TamperList(t, db, id)
	victim := purchases(t, db, id)[3].ID // the list is stored: a purchase that changes later is wrong alone
	servers.Exec(t, db, `UPDATE purchases SET user_id = 'somebody else' WHERE id = $1`, victim)
	if _, now := written(t, db, id); !bytes.Equal(now, right) {
		t.Error("the proof is another")
	}
	for _, p := range purchases(t, db, id) {
		if _, err := service.Purchase(t.Context(), p); errors.Is(err, drawing.ErrNotFrozenList) != (p.ID == victim) {
			t.Errorf("purchase %s: %v", p.ID, err)
		}
	}
}

// The list is public while the draw waits for its round: with it, anybody computes the outcome.
func TestTheListIsThereFromTheFreezeOnAndIsThatOfTheProof(t *testing.T) {
	t.Parallel()
	chain, err := drandsim.NewChain([]byte(strings.Repeat("5e", 32)), time.Now().Add(-time.Hour), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	db := servers.DB(t)
	draft := fixture.Draft(50) // 1,275 lines: two subtrees
	draft.Policies.Beacon = true
	id := fixture.CampaignOn(t, db, draft, &chain.Chain)
	service := drawing.NewProofs(db)
	ref := fixture.SellOut(t, db, id)
	if _, err := service.List(t.Context(), id); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("before the freeze: %v", err)
	}
	if _, err := service.List(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of no campaign: %v", err)
	}
	drawer := drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, drawing.DrawerOptions{Beacon: chain}, servers.Logger(t))
	if _, err := drawer.Run(t.Context(), ref); !errors.As(err, new(*drawing.Waiting)) {
		t.Fatalf("it does not wait: %v", err)
	}
	read := func() (tag string, text []byte, l fairdraw.List, lines []fairdraw.SoldLine) {
		t.Helper()
		document, err := service.List(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := document.Write(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		text = bytes.Clone(out.Bytes())
		if l, err = fairdraw.ReadList(&out, func(line fairdraw.SoldLine) error { lines = append(lines, line); return nil }); err != nil {
			t.Fatal(err)
		}
		return document.Tag, text, l, lines
	}
	tag, text, l, lines := read()
	now, err := drawing.ProofStateOf(t.Context(), db, id)
	if err != nil || l.Root != now.Freeze.Root || l.Count != 1275 || l.CampaignID != id || bytes.Contains(text, []byte("buyer-")) ||
		now.Chain == nil || now.Chain.Hash() != chain.Hash() || now.Draw != nil || now.Trust != fairdraw.TrustBeacon || now.Freeze.Secret == nil ||
		!now.Progress.RoundDueAt.Equal(chain.DueAt(*now.Progress.Round)) || now.Campaign.Waiting == nil {
		t.Errorf("%+v, the draw shows %+v, %v", l, now.Freeze, err)
	}
	if check, err := l.Check(lines); err != nil {
		t.Errorf("%s: %v", check, err)
	}
	round := chain.Sign(*now.Progress.Round)
	in(t, db, func(tx pgx.Tx) error { return drawing.InsertRound(t.Context(), tx, chain.Hash(), round) })
	var rules fairdraw.Rules
	if err := json.Unmarshal(now.Rules, &rules); err != nil {
		t.Fatal(err)
	}
	computed := fairdraw.Winners(fairdraw.Select(rules.Prizes, lines, fairdraw.NewStream(fairdraw.Entropy(now.Freeze.Secret[:], id, l.Root, round.Randomness[:]))))
	drawn(t, db, ref)
	_, document := written(t, db, id)
	var sold []fairdraw.SoldLine
	p, err := fairdraw.ReadProof(bytes.NewReader(document), func(line fairdraw.SoldLine) error { sold = append(sold, line); return nil })
	if of := p.Beacon; of == nil || of.ChainHash != chain.Hash() || !bytes.Equal(of.PublicKey, chain.PublicKey) || of.GenesisTime != chain.GenesisTime || of.BeaconID != chain.ID ||
		of.PeriodS != chain.PeriodS || !bytes.Equal(of.GenesisSeed, chain.GenesisSeed) || of.Round != round.Number || *p.Round != round.Number ||
		!bytes.Equal(of.Signature, round.Signature) || of.Randomness != round.Randomness || p.Trust != fairdraw.TrustBeacon {
		t.Errorf("the round is %+v", of)
	}
	if err != nil || !slices.Equal(sold, lines) || !reflect.DeepEqual(p.Winners, computed) || len(computed) == 0 {
		t.Errorf("the proof has %d lines and the winners %+v, computed before: %+v, %v", len(sold), p.Winners, computed, err)
	}
	if again, same, _, _ := read(); again != tag || !bytes.Equal(same, text) {
		t.Error("after the draw the list has other bytes")
	}
}

func TestEveryPurchaseProvesItsLeavesFromTheFreezeOn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(50))
	service := drawing.NewProofs(db)
	big := fixture.Buy(t, db, id, "mina", 0, 40) // all over the tree
	gone := fixture.Buy(t, db, id, "otto", 0, 1)
	if _, err := fixture.Seller(db).Cancel(t.Context(), fixture.Accept(t, db, fixture.CancelRequest(t, id, gone)), sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	refused := func(purchaseID uuid.UUID, when string) {
		t.Helper()
		p, err := purchase.Get(t.Context(), db, access.Everything(), purchaseID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := service.Purchase(t.Context(), p); fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused(big, "before the freeze")
	ref := fixture.SellOut(t, db, id)
	refused(big, "while the freeze is not made")
	if _, err := service.Document(t.Context(), id); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("a proof before the draw: %v", err)
	}
	drawn(t, db, ref)
	refused(gone, "of a cancelled purchase")
	_, text := written(t, db, id)
	document, _ := parsed(t, text)
	seen := make(map[int]bool)
	for i, p := range purchases(t, db, id) {
		if p.ID == gone || p.ID != big && i%50 != 0 {
			continue
		}
		made, err := service.Purchase(t.Context(), p)
		if err != nil || made.Root != document.Root || made.Count != document.Count || made.CheckPaths() != nil || len(made.Leaves) != len(p.Items) {
			t.Fatalf("purchase %s: %d leaves of %d, %v", p.ID, len(made.Leaves), len(p.Items), err)
		}
		for _, leaf := range made.Leaves {
			if seen[leaf.Index] || leaf.UserID != p.UserID {
				t.Errorf("leaf %d is of %s, and of another", leaf.Index, leaf.UserID)
			}
			seen[leaf.Index] = true
		}
		if text, err := made.Canonical(); err != nil || !json.Valid(text) {
			t.Error(err)
		}
	}
	if len(seen) < 60 {
		t.Errorf("%d leaves have a proof", len(seen))
	}
}

func in(t *testing.T, db *pgxpool.Pool, do func(tx pgx.Tx) error) {
	t.Helper()
	if err := postgres.InTx(t.Context(), db, do); err != nil {
		t.Fatal(err)
	}
}

func TestLeavesAreFoundWhereverTheyStand(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(46)) // 1,081 leaves: the second subtree has 57
	ref := fixture.SellOut(t, db, id)
	drawn(t, db, ref)
	service := drawing.NewProofs(db)
	all := purchases(t, db, id)
	slices.SortFunc(all, func(a, b purchase.Purchase) int {
		if a.Items[0].Before(b.Items[0].Position) {
			return -1
		}
		return 1
	})
	for _, index := range []int{0, 1, 1022, 1023, 1024, 1025, 1079, 1080} {
		made, err := service.Purchase(t.Context(), all[index])
		if err != nil || made.Leaves[0].Index != index || (shape.Position{Layer: made.Leaves[0].Layer, Column: made.Leaves[0].Column}) != all[index].Items[0].Position {
			t.Errorf("leaf %d: %+v, %v", index, made.Leaves, err)
		}
	}
}
