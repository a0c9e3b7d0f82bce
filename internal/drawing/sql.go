package drawing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Draw is the recorded result of a campaign.
type Draw struct {
	CampaignID uuid.UUID
	Trust      string // fairdraw.TrustOperator or TrustBeacon
	Root       fairdraw.Hash
	Secret     fairdraw.Hash
	Randomness []byte // of the beacon's round, 32 bytes; empty without a beacon
	Winners    []fairdraw.ProofWinner
	Version    int64     // of the execution lock: the claim that drew
	ExecutedAt time.Time // the database's clock; insertDraw sets it
}

const drawColumns = `trust, root, secret, randomness, winners, execution_version`

// insertDraw stores a draw and sets its ExecutedAt. The primary key refuses a second, and
// a trigger one that is weaker than its rules.
func insertDraw(ctx context.Context, tx pgx.Tx, d *Draw) error {
	err := tx.QueryRow(ctx, `INSERT INTO draws (campaign_id, `+drawColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING executed_at`,
		d.CampaignID, d.Trust, d.Root[:], d.Secret[:], append([]byte{}, d.Randomness...), d.Winners, d.Version).Scan(&d.ExecutedAt)
	return fault.At(err, "drawing.insertDraw(%s)", d.CampaignID)
}

// DrawOf returns the draw of a campaign, or false when it is not drawn.
func DrawOf(ctx context.Context, db postgres.DB, id uuid.UUID) (Draw, bool, error) {
	d := Draw{CampaignID: id}
	var root, secret []byte
	err := db.QueryRow(ctx, `SELECT `+drawColumns+`, executed_at FROM draws WHERE campaign_id = $1`, id).
		Scan(&d.Trust, &root, &secret, &d.Randomness, &d.Winners, &d.Version, &d.ExecutedAt)
	if ok, err := postgres.Found(err); !ok {
		return Draw{}, false, fault.At(err, "drawing.DrawOf(%s)", id)
	}
	d.Root, d.Secret = fairdraw.Hash(root), fairdraw.Hash(secret)
	for i := range d.Winners {
		if d.Winners[i].Column == nil {
			d.Winners[i].Awarded = new(bool) // false; an earlier release did not store it
		}
	}
	return d, true, nil
}

// Freeze is a stored freeze record.
type Freeze struct {
	CampaignID uuid.UUID
	Record     []byte // canonical JSON
	Root       fairdraw.Hash
	Count      int
	FrozenAt   time.Time // whole microseconds
	Round      *uint64   // of the beacon; nil: none
}

const freezeColumns = `record, root, sold, frozen_at, round`

// FreezeOf returns the freeze of a campaign, or false when it is not frozen.
func FreezeOf(ctx context.Context, db postgres.DB, id uuid.UUID) (Freeze, bool, error) {
	f := Freeze{CampaignID: id}
	var root []byte
	err := db.QueryRow(ctx, `SELECT `+freezeColumns+` FROM freezes WHERE campaign_id = $1`, id).
		Scan(&f.Record, &root, &f.Count, &f.FrozenAt, &f.Round)
	if ok, err := postgres.Found(err); !ok {
		return Freeze{}, false, fault.At(err, "drawing.FreezeOf(%s)", id)
	}
	f.Root = fairdraw.Hash(root)
	return f, true, nil
}

// InsertFreeze stores a freeze with its list, and the subtrees over it, in order. The primary
// key refuses a second.
func InsertFreeze(ctx context.Context, tx pgx.Tx, f Freeze, list []fairdraw.SoldLine, subtrees []fairdraw.Subtree) error {
	_, err := tx.Exec(ctx, `INSERT INTO freezes (campaign_id, `+freezeColumns+`) VALUES ($1, $2, $3, $4, $5, $6)`,
		f.CampaignID, string(f.Record), f.Root[:], f.Count, f.FrozenAt, f.Round)
	if err != nil {
		return fmt.Errorf("drawing.InsertFreeze(%s): %w", f.CampaignID, err)
	}
	pages := slices.Collect(slices.Chunk(list, fairdraw.SubtreeLeaves))
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"freeze_subtrees"}, []string{"campaign_id", "number", "hash", "leaves"},
		pgx.CopyFromSlice(len(subtrees), func(number int) ([]any, error) {
			var leaves []byte
			for _, line := range pages[number] {
				leaves = line.AppendLeaf(leaves)
			}
			return []any{f.CampaignID, number, subtrees[number].Hash[:], leaves}, nil
		}))
	return fault.At(err, "drawing.InsertFreeze(%s): the list", f.CampaignID)
}

// soldLines is a sold list, line by line. It ends at the first error.
type soldLines = iter.Seq2[fairdraw.SoldLine, error]

// listPage is the leaves of how many subtrees one statement reads.
const listPage = 8

// SubtreesOf returns the stored nodes of a frozen tree in order. Of their leaves it reads
// only the position of the first.
func SubtreesOf(ctx context.Context, db postgres.DB, id uuid.UUID) ([]fairdraw.Subtree, error) {
	list, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (s fairdraw.Subtree, err error) {
		var hash, first []byte
		if err = row.Scan(&hash, &first); err == nil {
			s = fairdraw.Subtree{First: fairdraw.LineOf(first).Position(), Hash: fairdraw.Hash(hash)}
		}
		return s, err
	}, `SELECT hash, substring(leaves FROM 1 FOR $2) FROM freeze_subtrees WHERE campaign_id = $1 ORDER BY number`, id, fairdraw.LeafSize)
	return list, fault.At(err, "drawing.SubtreesOf(%s)", id)
}

// listBy yields a frozen list, by layer and column, by a function that reads the lines under
// some subtrees. It ends at the first error.
func listBy(lines func(number, subtrees int) ([]fairdraw.SoldLine, error)) soldLines {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		for number := 0; ; number += listPage {
			page, err := lines(number, listPage)
			if err != nil {
				yield(fairdraw.SoldLine{}, err)
				return
			}
			for _, line := range page {
				if !yield(line, nil) {
					return
				}
			}
			if len(page) < listPage*fairdraw.SubtreeLeaves {
				return
			}
		}
	}
}

// read returns the stored list of a freeze with its tree, or ErrNotFrozenList.
func (f Freeze) read(ctx context.Context, db postgres.DB) ([]fairdraw.SoldLine, *fairdraw.Tree, error) {
	list, tree, err := readList(listBy(func(number, subtrees int) ([]fairdraw.SoldLine, error) {
		return linesUnder(ctx, db, f.CampaignID, number, subtrees)
	}))
	if err == nil {
		err = checkFrozen(tree, f.Root, f.Count)
	}
	return list, tree, fault.At(err, "drawing.read(%s)", f.CampaignID)
}

func checkFrozen(tree *fairdraw.Tree, root fairdraw.Hash, count int) error {
	if tree.Root() != root || tree.Count() != count {
		return fmt.Errorf("%w: %d lines have the root %s", ErrNotFrozenList, tree.Count(), tree.Root())
	}
	return nil
}

// readList reads a sold list and builds its tree.
func readList(list soldLines) ([]fairdraw.SoldLine, *fairdraw.Tree, error) {
	var tree fairdraw.Tree
	sold := make([]fairdraw.SoldLine, 0, 1024)
	for line, err := range list {
		if err == nil {
			err = tree.Append(line)
		}
		if err != nil {
			return nil, nil, err
		}
		sold = append(sold, line)
	}
	return sold, &tree, nil
}

// linesUnder returns the lines of the frozen list that stand under some subtrees.
func linesUnder(ctx context.Context, db postgres.DB, id uuid.UUID, number, subtrees int) ([]fairdraw.SoldLine, error) {
	pages, err := postgres.Collect(ctx, db, pgx.RowTo[[]byte], `
		SELECT leaves FROM freeze_subtrees WHERE campaign_id = $1 AND number >= $2 AND number < $3 ORDER BY number`, id, number, number+subtrees)
	if err != nil {
		return nil, fmt.Errorf("drawing.linesUnder(%s, %d): %w", id, number, err)
	}
	var lines []fairdraw.SoldLine
	for _, leaves := range pages {
		for leaf := range slices.Chunk(leaves, fairdraw.LeafSize) {
			lines = append(lines, fairdraw.LineOf(leaf))
		}
	}
	return lines, nil
}

// Progress is how far the draw of a campaign is, before its result.
type Progress struct {
	CampaignID uuid.UUID
	Record     []byte         // the freeze record, canonical JSON; nil: of no progress
	FreezeHash *fairdraw.Hash // of the record
	Round      *uint64        // of the beacon; nil: none, or not frozen yet
	RoundDueAt *time.Time
	VoidsAt    *time.Time // nil: no void is announced
}

// ReadProgress reads how far draws are, in one statement. It leaves out campaigns that are
// not frozen yet.
func ReadProgress(ctx context.Context, db postgres.DB, ids []uuid.UUID) (map[uuid.UUID]Progress, error) {
	list, err := postgres.Collect(ctx, db, scanProgress, `
		SELECT i.id, f.record, f.round, r.due_at, v.voids_at
		FROM unnest($1::uuid[]) AS i (id)
		JOIN freezes f ON f.campaign_id = i.id
		LEFT JOIN draw_rounds(i.id) r ON true
		LEFT JOIN draw_voids v ON v.campaign_id = i.id`, ids)
	if err != nil {
		return nil, fmt.Errorf("drawing.ReadProgress: %w", err)
	}
	known := make(map[uuid.UUID]Progress, len(list))
	for _, p := range list {
		known[p.CampaignID] = p
	}
	return known, nil
}

func scanProgress(row pgx.CollectableRow) (p Progress, err error) {
	if err = row.Scan(&p.CampaignID, &p.Record, &p.Round, &p.RoundDueAt, &p.VoidsAt); err != nil {
		return p, err
	}
	hash := fairdraw.FreezeHash(p.Record)
	p.FreezeHash = &hash
	if p.RoundDueAt != nil {
		*p.RoundDueAt = p.RoundDueAt.UTC()
	}
	return p, nil
}

const chainColumns = `public_key, genesis_time, genesis_seed, beacon_id, period_s`

// InsertChain stores a chain that a campaign binds itself to, once.
func InsertChain(ctx context.Context, tx pgx.Tx, c beacon.Chain) error {
	hash := c.Hash()
	_, err := tx.Exec(ctx, `INSERT INTO beacon_chains (chain_hash, `+chainColumns+`) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		hash[:], c.PublicKey, c.GenesisTime, c.GenesisSeed, c.ID, c.PeriodS)
	return fault.At(err, "drawing.InsertChain(%x)", hash)
}

// ChainOf returns the chain of a hash, or false when no campaign has bound itself to it.
func ChainOf(ctx context.Context, db postgres.DB, hash fairdraw.Hash) (c beacon.Chain, ok bool, err error) {
	err = db.QueryRow(ctx, `SELECT `+chainColumns+` FROM beacon_chains WHERE chain_hash = $1`, hash[:]).
		Scan(&c.PublicKey, &c.GenesisTime, &c.GenesisSeed, &c.ID, &c.PeriodS)
	ok, err = postgres.Found(err)
	return c, ok, fault.At(err, "drawing.ChainOf(%s)", hash)
}

const roundColumns = `round, signature, randomness`

// InsertRound stores a round that beacon.Chain.Verify has returned, once.
func InsertRound(ctx context.Context, db postgres.DB, chain fairdraw.Hash, r beacon.Round) error {
	_, err := db.Exec(ctx, `INSERT INTO beacon_rounds (chain_hash, `+roundColumns+`) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		chain[:], r.Number, r.Signature, r.Randomness[:])
	return fault.At(err, "drawing.InsertRound(%s, %d)", chain, r.Number)
}

// maxRows bounds the rows of a round, or those newer than one, that are read: to verify one takes 7 to 18 ms.
const maxRows = 16

// roundOf returns the stored round that verifies, or false.
func roundOf(ctx context.Context, db postgres.DB, chain beacon.Chain, number uint64) (beacon.Round, bool, error) {
	stored, err := RowsOf(ctx, db, chain.Hash(), number)
	if err != nil {
		return beacon.Round{}, false, err
	}
	r, ok := firstVerified(chain, stored)
	return r, ok, nil
}

// newestRound returns the newest stored round of a chain that verifies, or known if none is newer.
func newestRound(ctx context.Context, db postgres.DB, chain beacon.Chain, known beacon.Round) (beacon.Round, error) {
	hash := chain.Hash()
	stored, err := rounds(ctx, db, `round > $2 ORDER BY round DESC LIMIT $3`, hash[:], known.Number, maxRows)
	if err != nil {
		return known, err
	}
	if newer, ok := firstVerified(chain, stored); ok {
		return newer, nil
	}
	return known, nil
}

func firstVerified(chain beacon.Chain, stored []beacon.Round) (beacon.Round, bool) {
	for _, r := range stored {
		if verified, err := chain.Verify(r.Number, r.Signature); err == nil {
			return verified, true
		}
	}
	return beacon.Round{}, false
}

// RowsOf returns the stored rows of a round, also those that do not verify.
func RowsOf(ctx context.Context, db postgres.DB, chain fairdraw.Hash, number uint64) ([]beacon.Round, error) {
	return rounds(ctx, db, `round = $2 ORDER BY stored_at LIMIT $3`, chain[:], number, maxRows)
}

// roundWith returns the stored round that has a randomness, or false. It verifies nothing: the
// randomness comes from a verified round or from a draw.
func roundWith(ctx context.Context, db postgres.DB, chain fairdraw.Hash, number uint64, randomness []byte) (r beacon.Round, ok bool, err error) {
	found, err := rounds(ctx, db, `round = $2 AND randomness = $3 LIMIT 1`, chain[:], number, randomness)
	if err != nil || len(found) == 0 {
		return r, false, err
	}
	return found[0], true, nil
}

func rounds(ctx context.Context, db postgres.DB, which string, args ...any) ([]beacon.Round, error) {
	found, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (r beacon.Round, err error) {
		var randomness []byte
		if err = row.Scan(&r.Number, &r.Signature, &randomness); err == nil {
			r.Randomness = [sha256.Size]byte(randomness) // a CHECK says so
		}
		return r, err
	}, `SELECT `+roundColumns+` FROM beacon_rounds WHERE chain_hash = $1 AND `+which, args...)
	return found, fault.At(err, "drawing.rounds")
}
