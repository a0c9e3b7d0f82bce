// Package proof makes the documents that let outsiders check a draw. It only reads.
//
//	[StateOf]           what is public of a draw now: commitment, freeze record, waiting, result
//	[Service.Document]  the proof document of a drawn campaign, streamed page by page
//	[Service.Purchase]  the leaves of one purchase with their paths to the frozen root
//
// The proof document is made anew for every reader from what is stored, which cannot
// change any more, so it is the same bytes for ever. While it is written the root is
// computed again from the lines: a list that is not the frozen one ends in
// [ErrNotFrozenList], and the document has no end.
//
// No statement takes long, and no transaction or connection is held while a slow reader
// reads. However many documents are read, few connections work on them.
package proof
