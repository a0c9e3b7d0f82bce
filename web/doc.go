// Package web tests the page /verify (draw/web) in a browser, alone and at a server.
package web
