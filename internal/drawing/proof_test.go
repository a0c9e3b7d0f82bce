package drawing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/verify"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func written(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (tag string, text []byte) {
	t.Helper()
	document, err := drawing.NewProofs(db).Document(t.Context(), id)
	servers.NoError(t, err)
	var out bytes.Buffer
	servers.NoError(t, document.Write(t.Context(), &out))
	return document.Tag, out.Bytes()
}

// verified returns the proof of a draw and its list, when anybody can verify it.
func verified(t *testing.T, db *pgxpool.Pool, id uuid.UUID, o verify.Options) (p fairdraw.Proof, sold []fairdraw.SoldLine) {
	t.Helper()
	_, text := written(t, db, id)
	if report, err := verify.Proof(bytes.NewReader(text), o); err != nil || !report.OK {
		t.Fatalf("%+v, %v", report, err)
	}
	p, err := fairdraw.ReadProof(bytes.NewReader(text), func(line fairdraw.SoldLine) error { sold = append(sold, line); return nil })
	if err != nil || p.CampaignID != id {
		t.Fatal(p, err)
	}
	return p, sold
}

func purchases(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (all []purchase.Purchase) {
	t.Helper()
	ids, err := postgres.Collect(t.Context(), db, pgx.RowTo[uuid.UUID], `SELECT id FROM purchases WHERE campaign_id = $1 ORDER BY id`, id)
	servers.NoError(t, err)
	for _, one := range ids {
		all = append(all, purchaseOf(t, db, one))
	}
	return all
}

func purchaseOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) purchase.Purchase {
	t.Helper()
	p, err := purchase.Get(t.Context(), db, access.Everything(), id)
	servers.NoError(t, err)
	return p
}

func TestAProofHasAllThatRedoesTheDrawAndIsTheSameBytesForEver(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(50)) // 1,275 lines: two subtrees
	drawn(t, newDrawer(t, db), fixture.SellOut(t, db, id))
	tag, text := written(t, db, id)
	if again, same := written(t, db, id); again != tag || !bytes.Equal(same, text) {
		t.Error("another reading has other bytes")
	}
	p, sold := verified(t, db, id, verify.Options{})
	if len(sold) != 1275 || len(p.Winners) != 50 || bytes.Contains(text, []byte("buyer-")) {
		t.Errorf("%d lines, %d winners, or names of buyers", len(sold), len(p.Winners))
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
	drawn(t, newDrawer(t, db), fixture.SellOut(t, db, id))
	_, right := written(t, db, id)
	fixture.TamperList(t, db, id)
	service := drawing.NewProofs(db)
	document, err := service.Document(t.Context(), id)
	servers.NoError(t, err)
	list, err := service.List(t.Context(), id)
	servers.NoError(t, err)
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
	all := purchases(t, db, id)
	for _, p := range all { // nobody gets a path in a tree that is not the frozen one
		if _, err := service.Purchase(t.Context(), p); !errors.Is(err, drawing.ErrNotFrozenList) {
			t.Errorf("purchase %s: %v", p.ID, err)
		}
	}
	fixture.TamperList(t, db, id)
	all[3].UserID = "somebody else" // the list is stored: a purchase that changes later is wrong alone
	servers.Exec(t, db, `UPDATE purchases SET user_id = $2 WHERE id = $1`, all[3].ID, all[3].UserID)
	if _, now := written(t, db, id); !bytes.Equal(now, right) {
		t.Error("the proof is another")
	}
	for i, p := range all {
		if _, err := service.Purchase(t.Context(), p); errors.Is(err, drawing.ErrNotFrozenList) != (i == 3) {
			t.Errorf("purchase %s: %v", p.ID, err)
		}
	}
}

// The list is public while the draw waits for its round: with it, anybody computes the outcome.
func TestTheListIsThereFromTheFreezeOnAndIsThatOfTheProof(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	draft := fixture.Draft(50) // 1,275 lines: two subtrees
	draft.Policies.Beacon = true
	id := fixture.CampaignOn(t, db, draft, &chain.Chain)
	service, drawer, ref := drawing.NewProofs(db), newDrawer(t, db), fixture.SellOut(t, db, id)
	for of, want := range map[uuid.UUID]fault.Code{id: fault.StateConflict, uuid.New(): fault.NotFound} { // before the freeze
		if _, err := service.List(t.Context(), of); fault.CodeOf(err) != want {
			t.Errorf("it is not %s: %v", want, err)
		}
	}
	waits(t, drawer, ref)
	read := func() (tag string, text []byte, l fairdraw.List, lines []fairdraw.SoldLine) {
		t.Helper()
		document, err := service.List(t.Context(), id)
		servers.NoError(t, err)
		var out bytes.Buffer
		servers.NoError(t, document.Write(t.Context(), &out))
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
	if root, err := fairdraw.RootOf(lines); err != nil || root != l.Root || len(lines) != l.Count {
		t.Errorf("its %d lines have the root %s, %v", len(lines), root, err)
	}
	round := chain.Sign(*now.Progress.Round)
	know(t, db, chain, round.Number)
	var rules fairdraw.Rules
	servers.NoError(t, json.Unmarshal(now.Rules, &rules))
	computed := fairdraw.Select(rules.Prizes, lines, fairdraw.NewStream(fairdraw.Entropy(now.Freeze.Secret[:], id, l.Root, round.Randomness[:])))
	drawn(t, drawer, ref)
	p, sold := verified(t, db, id, verify.Options{Chains: []fairdraw.Hash{chain.Hash()}})
	if *p.Round != round.Number || p.Trust != fairdraw.TrustBeacon || !slices.Equal(sold, lines) || !reflect.DeepEqual(p.Winners, computed) || len(computed) == 0 {
		t.Errorf("the proof has %d lines and the winners %+v, computed before: %+v", len(sold), p.Winners, computed)
	}
	if again, same, _, _ := read(); again != tag || !bytes.Equal(same, text) {
		t.Error("after the draw the list has other bytes")
	}
}

func TestEveryPurchaseProvesItsLeavesFromTheFreezeOn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(50)) // two subtrees
	service := drawing.NewProofs(db)
	big := fixture.Buy(t, db, id, "mina", 0, 40) // all over the tree
	gone := fixture.Buy(t, db, id, "otto", 0, 1)
	_, err := fixture.Seller(db).Cancel(t.Context(), fixture.Accept(t, db, fixture.CancelRequest(t, id, gone)), sale.WaitForCampaign)
	servers.NoError(t, err)
	refused := func(purchaseID uuid.UUID, when string) {
		t.Helper()
		if _, err := service.Purchase(t.Context(), purchaseOf(t, db, purchaseID)); fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused(big, "before the freeze")
	ref := fixture.SellOut(t, db, id)
	refused(big, "while the freeze is not made")
	if _, err := service.Document(t.Context(), id); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("a proof before the draw: %v", err)
	}
	drawn(t, newDrawer(t, db), ref)
	refused(gone, "of a cancelled purchase")
	document, sold := verified(t, db, id, verify.Options{})
	edges := make(map[fairdraw.Position]bool)
	for _, index := range []int{0, 1, 1022, 1023, 1024, 1025, 1273, 1274} { // of the tree, and of its subtrees
		edges[sold[index].Position()] = true
	}
	seen := make(map[int]bool)
	for i, p := range purchases(t, db, id) {
		first := fairdraw.Position{Layer: p.Items[0].Layer, Column: p.Items[0].Column}
		if p.ID == gone || p.ID != big && i%50 != 0 && !edges[first] {
			continue
		}
		made, err := service.Purchase(t.Context(), p)
		if err != nil || made.Root != document.Root || made.Count != document.Count || made.CheckPaths() != nil || len(made.Leaves) != len(p.Items) {
			t.Fatalf("purchase %s: %d leaves of %d, %v", p.ID, len(made.Leaves), len(p.Items), err)
		}
		for _, leaf := range made.Leaves {
			if seen[leaf.Index] || leaf.UserID != p.UserID || leaf.Line() != sold[leaf.Index] {
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
