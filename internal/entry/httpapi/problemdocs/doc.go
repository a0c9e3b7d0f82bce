// Package problemdocs renders the manual's pages about problems: one for every code,
// where the type of a problem document leads, and their index. Each comes as
// HTML and as plain text.
//
// The HTML needs nothing but itself: no script, no font, no picture from
// elsewhere. It is shown in full under
//
//	Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'
//
// What the pages say about a code stands in package fault; which status a code
// has is the door's to say. Nothing here knows of HTTP beyond names of statuses.
package problemdocs
