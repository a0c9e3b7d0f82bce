// Package metadata is what apps write on campaigns, holds, purchases, wallets and movements
// for themselves: pairs of strings, such as the id of an order in their own books. They are
// kept and given back as they were. Nothing here or elsewhere acts on them, and no rules,
// proof or draw has them in it.
//
// It owns the bounds. The tables have a wider one of their own.
package metadata
