// Package proof makes the documents with which outsiders check a draw. It only reads.
//
//	[StateOf]           the public state of a draw: commitment, freeze record, waiting, result
//	[Service.List]      the list document of a frozen campaign, streamed page by page
//	[Service.Document]  the proof document of a drawn campaign, streamed page by page
//	[Service.Purchase]  the leaves of one purchase with their paths to the frozen root
//
// Both documents are made for every reader from rows that cannot change, so they are the
// same bytes for ever. The root is computed again from the lines that are sent: a list
// that is not the frozen one ends in [ErrNotFrozenList], and the document has no end.
//
// No statement takes long, and a slow reader keeps no connection.
package drawing
