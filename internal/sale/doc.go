// Package sale sells positions, cancels purchases and concludes payments, in batches.
//
//	lock campaigns ─▶ read ─▶ end holds ─▶ admit ─▶ lock wallets ─▶ allocate ─▶ write ─▶ start draws
//
// These are the steps of [Seller.Sell], one transaction for jobs of any campaigns:
//
//   - lock campaigns: by id. [Wait] says whether to wait for locked ones, or to return
//     their jobs as Busy.
//   - read, in later statements: campaigns, the queued jobs, and the positions of their
//     users where there is a limit.
//   - end holds that are over, so that their positions are free.
//   - admit: refuse jobs by the state of their campaign. A refusal is final, as a sale is.
//   - lock wallets of the jobs that are paid by wallet.
//   - allocate, in order of arrival: check limit and money, and give each job all or
//     nothing: the positions of its hold, chosen ones, or the first free ones by rank. A
//     job that is paid by card gets them reserved, and stays open: for as long as its user
//     may keep them without paying.
//   - write: counters, positions, purchases, money and outcomes. When a statement changes
//     other rows than expected, everything is rolled back.
//   - start draws: when the last position of a campaign is sold, set drawing and insert
//     the draw job.
//
// [Seller.Conclude] decides about payments whose end is known, with the same steps: lock
// campaigns, lock payments, read, decide, write, start draws. A captured payment sells its
// positions or gets one refund row. An ended one frees its positions, and notes how long its
// user has kept them. Late money gets
// other positions or goes back.
//
// [Seller.Cancel] cancels purchases of active campaigns, with the same steps. Card money
// gets a refund row. A purchase that is being paid is given up before its capture, and
// refunded after it; its cancellation waits for the payment.
//
// No transaction here waits for a provider (see package payments). [ExpireReservations]
// gives up payments past their deadline.
//
// [Seller.EndSale] ends a sale that is drawn at its end. It ends holds; the conclusion of
// the last reservation begins the draw. A payment without news is given up when its
// reservation, with every extension, is over.
//
// A job is final exactly when its effect is committed. The transactions are READ
// COMMITTED: the row lock of a campaign makes its sales take turns.
package sale
