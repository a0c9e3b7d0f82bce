"""Tests triprize.py on a running Triprize: API is its address, APP a key, CAMPAIGN a triangle of 15 positions."""

import email.utils
import os
import queue
import re
import socket
import ssl
import threading
import time
import unittest
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import triprize

CAMPAIGN = os.environ["CAMPAIGN"]
PATIENT = {"timeout": 600, "elapsed": 600}  # on any machine
app = triprize.Triprize(os.environ["API"] + "/", lambda: os.environ["APP"], **PATIENT)


def served(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def trickle(server, head):
    connection, _ = server.accept()
    try:
        connection.sendall(head)
        while not threading.Event().wait(0.01):
            connection.sendall(b"H")
    except OSError:
        connection.close()


def buy(user, layer):
    order = {"user_id": user, "selection": {"layer": layer, "quantity": 1}, "payment": {"method": "external"}}
    return app.buy(CAMPAIGN, order, key=str(uuid.uuid4()))["result"]["purchase_id"]


class Tests(unittest.TestCase):
    def test_the_page_sells_and_receives_webhooks(self):
        events, said = queue.Queue(), []
        page = {"remember_once": lambda *event: events.put(event), "print": lambda *words: said.append(words)}
        text = (Path(__file__).parent / "../../docs/python.md").read_text()
        for block in re.findall(r"```python\n(.*?)```", text, re.S):
            exec(block.replace('os.environ["APP"])', f'os.environ["APP"], **{PATIENT})'), page)
            self.assertEqual(page["job"]["state"], "succeeded")
        self.assertEqual((len(said[0][0]), said[1][1:]), (2, ("completed", 600)))
        url = served(page["Receiver"])
        endpoint = app.call("POST", "/v1/webhook-endpoints", body={"url": url, "events": ["job.failed"]})
        os.environ["WEBHOOK_SECRET"] = endpoint["secret"]
        sent = app.call("POST", "/v1/webhook-endpoints/{}/test", endpoint["id"])["event_id"]
        id, event = events.get(timeout=600)
        self.assertEqual((id, event["id"], event["type"]), (sent, sent, "webhook-endpoint.test"))
        for status, length in (401, 2), (413, (1 << 20) + 1), (413, -1):
            with self.assertRaisesRegex(urllib.request.HTTPError, str(status)):
                urllib.request.urlopen(urllib.request.Request(url, b"{}", {"Content-Length": str(length)}))

    def test_purchases_are_made_once_listed_and_refused(self):
        attempts, opened = [], triprize._opener.open

        def losing(request, timeout):
            attempts.append(opened(request, timeout=timeout))
            if len(attempts) == 1:
                attempts[0].read()
                raise ConnectionResetError
            return attempts[-1]

        with mock.patch.object(triprize._opener, "open", losing):
            bought = [buy("ada/1", 1)]
        self.assertEqual(len(attempts), 2)
        bought += [buy("ada/1", 5) for _ in range(2)]
        self.assertEqual([p["id"] for p in app.list("/v1/users/{}/purchases", "ada/1", limit=1)], bought[::-1])
        by = {"method": "external", "user_id": "ada/1"}  # method is also an argument of call
        self.assertEqual(len([*app.list("/v1/campaigns/{}/purchases", CAMPAIGN, **by)]), 3)
        for user, *want in ("bo", 409, "sold-out", True, 0), ("", 400, "invalid-request", False, 1):
            with self.assertRaises(triprize.TriprizeError) as refused:
                buy(user, 1)
            e = refused.exception
            self.assertEqual([e.status, e.code, e.final, len(e.errors)], want)
        self.assertTrue(e.detail and e.request_id and e.errors[0]["pointer"] == "/user_id")

    def test_only_what_may_be_repeated_is_sent_again(self):
        script, keys, prefers, pauses = [], [], [], []

        class Scripted(BaseHTTPRequestHandler):
            def do_POST(self):
                keys.append(self.headers["Idempotency-Key"])
                prefers.append(self.headers["Prefer"])
                status, header, body = script.pop(0)
                self.send_response(status)
                self.send_header(*header.split(" ", 1))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PATCH = do_POST
            log_message = lambda *_: None

        url, good = served(Scripted), (200, "X y", b"")
        client = triprize.Triprize(url, "tp_key")
        for method, first, attempts, final in (
            ("POST", (503, "Retry-After 7", b""), 2, None), ("GET", (502, "X y", b"<html>"), 2, None),
            ("GET", (200, "Content-Length 9", b"{}"), 2, None), ("POST", (200, "X y", b"<html>"), 2, None),
            ("PATCH", (503, "X y", b""), 1, False),
            ("GET", (302, "Location /elsewhere", b""), 1, False), ("POST", (422, "X y", b'{"code": "x"}'), 1, False),
            ("POST", (409, "X y", b'{"code": "state-conflict"}'), 1, False),
            ("BUY", (409, "X y", b'{"code": "sold-out"}'), 1, True), ("BUY", (409, "X y", b'{"code": 9}'), 1, False),
        ):
            script[:], keys[:], failed = [first, good], [], None
            with mock.patch("time.sleep", pauses.append):
                try:
                    client.buy("c", {}, "k") if method == "BUY" else client.call(method, "/")
                except triprize.TriprizeError as e:
                    failed = e.final
            self.assertEqual((len(keys), len(set(keys)), failed), (attempts, 1, final), first)
        self.assertTrue(7 <= pauses[0] <= 8.75 and max(pauses[1:]) <= 0.3, pauses)
        with mock.patch("time.sleep", pauses.append), self.assertRaises(triprize.UnreachableError):
            triprize.Triprize("http://127.0.0.1:1", "tp_key").call("PATCH", "/")
        self.assertEqual(len(pauses), 4 + 7)  # nothing was sent
        at = email.utils.formatdate(time.time() + 3600, usegmt=True)
        script[:] = [(503, f"Retry-After {at}", b"")]
        with mock.patch("time.sleep", pauses.append), self.assertRaises(triprize.TriprizeError) as refused:
            client.call("GET", "/")
        self.assertTrue(refused.exception.retry_after > 3000 and len(pauses) == 11)  # it is longer than elapsed
        for wrong in "tp_secret\n", "tp_\nsecret", "", None, "tp_sécret", lambda: "tp_secret\n":
            with self.assertRaisesRegex(ValueError, "^the credential must be an API key or a JSON Web Token$"):
                triprize.Triprize(url, wrong).call("GET", "/")
        for wrong in "", ".", "..":
            self.assertRaises(ValueError, client.call, "GET", "/v1/jobs/{}", wrong)
        with mock.patch("time.sleep", pauses.append):
            for never in "htps://a", "http://a b":
                self.assertRaises(triprize.UnreachableError, triprize.Triprize(never, "tp_key").call, "GET", "/")
            script[:] = [(200, "X y", b"[0123456789]")]
            with mock.patch("triprize.MOST_BYTES", 10), self.assertRaisesRegex(triprize.TriprizeError, "over 10 bytes"):
                client.call("GET", "/")
        self.assertEqual(len(pauses), 11)  # nothing was tried again
        broken = ssl.SSLError(1, "a record was damaged")
        broken.reason = "BAD_RECORD"
        with mock.patch("time.sleep"), mock.patch.object(triprize, "_attempt", side_effect=[broken, ({}, 0)]) as tried:
            client.call("POST", "/")
        self.assertEqual(tried.call_count, 2)
        for head in b"", b"HTTP/1.1 200 OK\r\n\r\n":
            with socket.create_server(("127.0.0.1", 0)) as trickles:
                slow = triprize.Triprize(f"http://127.0.0.1:{trickles.getsockname()[1]}", "tp_key", timeout=0.2, attempts=1)
                threading.Thread(target=trickle, args=(trickles, head), daemon=True).start()
                self.assertRaises(triprize.UnreachableError, slow.call, "GET", "/")
        states = "queued", "queued", "awaiting_action", "succeeded"
        jobs = [(200, "Retry-After 3", b'{"id": "j", "state": "%s"}' % state.encode()) for state in states]
        for ask, want in (lambda: client.buy("c", {}, "k"), "awaiting_action"), (lambda: client.wait("j"), "succeeded"):
            script[:] = jobs
            with mock.patch("time.sleep", pauses.append):
                self.assertEqual(ask()["state"], want)
        self.assertEqual([round(pause) for pause in pauses[11:]], [3, 3, 3, 3])
        script[:] = jobs[:1]
        self.assertRaises(TimeoutError, client.wait, "j", timeout=2)  # it would be asked again after three
        self.assertEqual(prefers[-1], "wait=1; until=final")

    def test_only_a_fresh_webhook_of_the_secret_is_verified(self):
        secret, other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
        headers = {"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330",
                   "Webhook-Signature": "v1,\u00e4 v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}

        def verify(now=1614265330, body=b'{"test": 2432232314}', secrets=(other, secret), **changed):
            with mock.patch("time.time", lambda: now):
                return triprize.verify_webhook(body, {**headers, **changed}, *secrets)

        self.assertEqual(verify(1614265031), {"test": 2432232314, "id": "msg_p5jXN8AQM9LWM0D4loKWxJek"})
        for wrong in ({"now": 1614265631}, {"body": b"{}"}, {"secrets": [other]}, {"Webhook-Id": "msg_2"},
                      {"Webhook-Timestamp": "1614265331"}, {"Webhook-Timestamp": "now"}, {"Webhook-Signature": ""}):
            with self.assertRaises(triprize.WebhookError, msg=wrong):
                verify(**wrong)
        for none in ([], ["whsec_"], [""]):
            self.assertRaises(ValueError, verify, secrets=none)


unittest.main()
