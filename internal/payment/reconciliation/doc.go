// Package reconciliation compares the provider's balance with our books, day by day, and
// keeps what differs for operators.
//
// A [Reconciler] takes the oldest day (UTC) that ended 48 hours ago and is not done. It lists
// the provider's balance transactions of the day, matches each by its source, in the
// source's own currency, and then looks for money of ours that has none. Sums of days are
// never compared: the two clocks differ.
//
//	claimed ─▶ listed, span by span ─▶ compared, and done
//	   ▲  cut off, or the provider is away: it goes on after the last span
//	   └──────────────┘
//
// [CompareSpan] compares any span at once, by the same rules, and stores nothing.
//
// It promises:
//
//   - A day is listed once, and each transaction is stored once, however many run.
//   - A difference that is none any more is closed by the next run.
//   - What others do on the account is no difference: all that we make there carries the id of
//     this installation, see [Mark].
//   - It changes no payment, refund or purchase, ever.
package reconciliation
