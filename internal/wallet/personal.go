package wallet

import "triprize/internal/platform/personal"

// OfPerson selects the ids of the wallets of a person, also of those that are erased, see [personal.Table].
const OfPerson = `SELECT w.id FROM wallets w WHERE w.owner_id IN ($2, $3) AND ($1::text IS NULL OR w.client = $1)`

// EntriesOfPerson selects the ids of the entries of these wallets.
const EntriesOfPerson = `SELECT e.entry_id FROM wallet_events e WHERE e.wallet_id IN (` + OfPerson + `)`

// Personal is what wallets have of persons. An entry between two wallets is about both owners.
var Personal = []personal.Table{
	{Name: "ledger_entries", Of: `t.id IN (` + EntriesOfPerson + `)`,
		Wipe: map[string]string{"actor": `split_part(t.actor, '/', 1)`, "description": `NULL`, "metadata": `NULL`, "reference": `CASE t.scope WHEN '' THEN t.reference ELSE 'erased:' || t.id END`},
		Why:  "the money of wallets", Till: "never"},
	{Name: "authorizations", Of: `t.wallet_id IN (` + OfPerson + `)`, Open: `t.wallet_id IN (` + OfPerson + `) AND t.state = 'active'`,
		Wipe: map[string]string{"description": `NULL`, "metadata": `NULL`}, Why: "money that was held", Till: "never"},
	{Name: "wallet_metadata", Of: `t.wallet_id IN (` + OfPerson + `)`, Gone: []string{"metadata"}, Why: "what the app has noted at a wallet", Till: "never"},
	{Name: "wallets", Of: `t.owner_id = $2 AND ($1::text IS NULL OR t.client = $1)`, Open: `t.owner_id = $2 AND ($1::text IS NULL OR t.client = $1) AND (t.balance <> 0 OR t.held <> 0)`,
		When: `t.balance = 0 AND t.held = 0`, // a command that names the wallet may have been faster
		Wipe: map[string]string{"owner_id": `$3`}, Why: "whose money it is", Till: "never"},
}
