// Package stripe speaks with Stripe: PaymentIntents, refunds, events. It knows no table
// of ours and decides nothing about purchases.
//
// A call is one HTTP exchange with a timeout. It ends with an object as Stripe has it, or
// with an [Error], whose Kind says whether something may have been done.
package stripe
