// Package web tests the pages in a browser: /verify (draw/web), alone and at a server, and the console.
package web
