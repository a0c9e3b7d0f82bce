// Package sale sells positions: a [Seller] settles many purchase jobs, of any number
// of campaigns, in one transaction.
//
//	lock campaigns ─▶ read ─▶ end holds ─▶ admit ─▶ lock wallets ─▶ allocate ─▶ write ─▶ start draws
//
// These are the steps of [Seller.Sell]:
//
//   - lock campaigns: by id. [Wait] says whether to wait for those that another
//     transaction has locked, or to return their jobs as Busy.
//   - read, in later statements: campaigns, the jobs that are still queued, and how
//     many positions their users have where there is a limit.
//   - end holds: those that are over, so that their positions are free.
//   - admit: refuse jobs by the state of their campaign. A refusal settles a job, like
//     a sale does.
//   - lock wallets: of the jobs that are paid by wallet.
//   - allocate, in order of arrival: check limit and money, and give each job all it
//     wants or nothing: the positions of its hold, chosen ones, or the first free ones
//     by rank. A job that is paid by card gets them reserved, and stays open.
//   - write: counters, positions, purchases, money and the outcomes of the jobs. When a
//     statement does not change exactly its rows, everything is rolled back.
//   - start draws: when the last position of a campaign is sold, move it to drawing and
//     insert the draw job, whose first step freezes the sold list.
//
// [Seller.Conclude] decides what becomes of payments at a provider whose end is known, with
// the same steps: lock campaigns, lock payments, read, decide, write, start draws. A captured
// payment is settled (sold), or returned (given back, with one refund row); one that has
// ended frees what it kept; late money gets other positions or goes back.
//
// [Seller.Cancel] takes purchases back while their campaigns are active, as many jobs in
// one transaction and with the same steps: lock campaigns, read, lock payments and wallets,
// decide in order of arrival, write. What a card has paid gets a refund row. A purchase
// that is being paid is given up before the capture, and refunded from then on; its
// cancellation waits for the payment.
//
// No transaction here waits for a provider. Package payments leads a payment through its
// phases and says when it can be concluded. [ExpireReservations] gives those up whose
// deadline is over and that nobody leads.
//
// [Seller.EndSale] ends a sale whose rules say that what is sold by then is drawn. It ends
// holds, and waits for reservations by leaving them to their payments: the conclusion of
// the last one begins the draw. One whose payment nobody tells of is given up when it
// should have ended with every extension.
//
// A job is final exactly when its effect is committed, no matter how often it is
// delivered. The transactions are READ COMMITTED: the row lock of a campaign makes its
// sales take turns.
package sale
