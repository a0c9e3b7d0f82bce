"""A client of Triprize in one file, for Python 3.9 and newer, without dependencies: see docs/python.md."""

import base64
import email.utils
import hmac
import http.client
import json
import random
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

Document = Dict[str, Any]  # as in the contract, api/openapi.yaml
TRANSIENT = (408, 429, 500, 502, 503, 504)  # the statuses that are retried
MOST_BYTES = 64 << 20  # of an answer


class TriprizeError(Exception):
    """A request was rejected, or a job has failed. Branch on `code`."""

    def __init__(self, status: int, problem: Document, final: bool, retry_after: float = 0) -> None:
        self.status, self.problem, self.retry_after = status, problem, retry_after
        self.code: str = problem.get("code", "")  # such as "sold-out"; empty: not an answer of Triprize
        self.detail: str = problem.get("detail", "")
        self.errors: List[Document] = problem.get("errors", [])  # the invalid fields
        self.request_id: str = problem.get("request_id", "")
        self.final = final  # of buy and wait: nothing was bought, and nothing more is tried
        super().__init__(f"{status} {self.code}: {self.detail} {self.errors or ''} (request {self.request_id})")


class UnreachableError(Exception):
    """There was no answer. A POST may have succeeded: send it again with the same `key`."""

    def __init__(self, request: str, key: Optional[str], reason: Exception) -> None:
        super().__init__(f"{request} (Idempotency-Key {key}): {reason!r}")
        self.key = key


class WebhookError(Exception):
    """A webhook is not signed with the secret, or is too old. Answer it with 401."""


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Returns errors and redirects as they are. Who follows a redirect sends it the credential."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


class _Answer(http.client.HTTPResponse):
    """Bounds the time of a whole answer. The timeout of a socket is for each read, which a byte ends."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        raw: Any = self.fp.raw  # type: ignore[union-attr]
        read, end = raw.readinto, time.monotonic() + sock.gettimeout()

        def readinto(buffer: Any) -> Any:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the answer takes too long")
            sock.settimeout(left)
            return read(buffer)

        raw.readinto = readinto


class _Plain(http.client.HTTPConnection):
    response_class = _Answer


class _Encrypted(http.client.HTTPSConnection):
    response_class = _Answer


class _HTTP(urllib.request.HTTPHandler):
    def http_open(self, request: Any) -> Any:
        return self.do_open(_Plain, request)


class _HTTPS(urllib.request.HTTPSHandler):
    def https_open(self, request: Any) -> Any:
        return self.do_open(_Encrypted, request)


_opener = urllib.request.build_opener(_AnyStatus, _HTTP, _HTTPS)


@dataclass(frozen=True)
class Triprize:
    """Calls a server with an API key, or with a function that returns a token. Threads can share it."""

    url: str
    credential: Union[str, Callable[[], str]] = field(repr=False)
    timeout: float = 15  # seconds for an answer; the wait for a job is added
    attempts: int = 8
    elapsed: float = 120  # seconds after which no attempt begins

    def call(self, method: str, path: str, /, *values: str, body: Optional[Document] = None,
             key: Optional[str] = None, wait: int = 0, **query: Any) -> Document:
        """Calls an operation of the contract. The values replace each {} of the path.

        All attempts of a POST have the same Idempotency-Key: `key`, or a random one. With `wait`
        the server waits so many seconds for the job.
        """
        if method == "POST" and key is None:
            key = str(uuid.uuid4())
        return self._call(method, path, values, body, key, f"wait={wait}" if wait else None, query)[0]

    def list(self, path: str, /, *values: str, **query: Any) -> Iterator[Document]:
        """Reads all pages of a list."""
        while True:
            page = self.call("GET", path, *values, **query)
            yield from next(items for items in page.values() if isinstance(items, list))
            if page.get("next_cursor") is None:
                return
            query["cursor"] = page["next_cursor"]

    def buy(self, campaign: str, order: Document, key: str, timeout: float = 900) -> Document:
        """Returns the job of a purchase: `succeeded`, or `awaiting_action` of the buyer (cards only)."""
        end = time.monotonic() + timeout
        try:
            job = self.call("POST", "/v1/campaigns/{}/purchases", campaign, body=order, key=key, wait=_seconds(timeout))
        except TriprizeError as e:
            e.final = e.status == 409 and e.code != ""
            raise
        return _checked(job) if job["state"] != "queued" else self.wait(job["id"], end - time.monotonic(), until_final=False)

    def wait(self, job_id: str, timeout: float = 900, until_final: bool = True) -> Document:
        """Waits until a job has succeeded; raises TriprizeError if it fails, TimeoutError if it stays open."""
        end = time.monotonic() + timeout
        while True:
            asked = time.monotonic()
            prefer = f"wait={_seconds(end - asked)}" + ("; until=final" if until_final else "")
            job, retry_after = self._call("GET", "/v1/jobs/{}", (job_id,), prefer=prefer)
            if job["state"] != "queued" and not (until_final and job["state"] == "awaiting_action"):
                return _checked(job)
            pause = max(0, asked + max(retry_after, 1) - time.monotonic())
            if time.monotonic() + pause >= end:
                raise TimeoutError(f"job {job_id} is {job['state']}")
            time.sleep(pause)

    def _call(self, method: str, path: str, values: Tuple[str, ...], body: Optional[Document] = None,
              key: Optional[str] = None, prefer: Optional[str] = None,
              query: Optional[Mapping[str, Any]] = None) -> Tuple[Document, float]:
        if any(value in ("", ".", "..") for value in values):
            raise ValueError(f"{values} cannot be in {path}: no URL can have it")
        url = self.url.rstrip("/") + path.format(*(urllib.parse.quote(value, safe="") for value in values))
        url += "?" + urllib.parse.urlencode(query) if query else ""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json, application/problem+json", "Idempotency-Key": key,
                   "User-Agent": "triprize-python", "Prefer": prefer, "Content-Type": "application/json" if data else None}
        timeout = self.timeout + (float(re.findall("[0-9]+", prefer)[0]) if prefer else 0)
        began, attempt = time.monotonic(), 1
        while True:
            headers["Authorization"] = f"Bearer {_checked_credential(self.credential)}"
            sent = {name: value for name, value in headers.items() if value is not None}
            try:
                return _attempt(urllib.request.Request(url, data, sent, method=method), timeout)
            except (TriprizeError, OSError, http.client.HTTPException) as failure:
                pause = min(0.2 * 2 ** (attempt - 1), 10) * random.uniform(0.5, 1.5)
                repeatable = method in ("GET", "DELETE", "POST")
                if isinstance(failure, TriprizeError):
                    again = repeatable and failure.status in TRANSIENT
                    pause = failure.retry_after * random.uniform(1, 1.25) or pause
                else:
                    unsent = (ConnectionRefusedError, socket.gaierror)  # there was no connection
                    reason = failure.reason if isinstance(failure, urllib.error.URLError) else None
                    never = isinstance(failure, http.client.InvalidURL) or isinstance(reason, (str, ssl.SSLCertVerificationError))
                    again = not never and (repeatable or isinstance(reason, unsent))
                if not again or attempt >= self.attempts or time.monotonic() - began + pause > self.elapsed:
                    if isinstance(failure, TriprizeError):
                        raise
                    raise UnreachableError(f"{method} {url}", key, failure) from failure
            attempt += 1
            time.sleep(pause)


def _attempt(request: urllib.request.Request, timeout: float) -> Tuple[Document, float]:
    with _opener.open(request, timeout=timeout) as answer:
        text, status, after = answer.read(MOST_BYTES + 1), answer.status, answer.headers.get("Retry-After", "")
        if len(text) > MOST_BYTES:
            raise TriprizeError(status, {"detail": f"the answer is over {MOST_BYTES} bytes"}, False)
        if answer.length:
            raise http.client.IncompleteRead(text, answer.length)
    retry_after = _retry_after(after)
    try:
        document = json.loads(text or "{}")
    except ValueError:
        document = None
    if 200 <= status < 300:
        if document is None:
            raise http.client.HTTPException(f"{status} without JSON")  # of a proxy: nobody knows what has happened
        return document, retry_after
    known = isinstance(document, dict) and isinstance(document.get("code"), str)
    raise TriprizeError(status, document if known else {"detail": answer.reason}, False, retry_after)


def _checked_credential(credential: Union[str, Callable[[], str]]) -> str:
    value = credential() if callable(credential) else credential
    if not isinstance(value, str) or not re.fullmatch("[!-~]+", value):  # the error of http.client would show it
        raise ValueError("the credential must be an API key or a JSON Web Token")
    return value


def _retry_after(text: str) -> float:
    if re.fullmatch("[0-9]{1,9}", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0


def _seconds(left: float) -> int:
    return int(min(30, max(1, left)))  # of waiting at the server


def _checked(job: Document) -> Document:
    if job["state"] == "failed":
        raise TriprizeError(job["problem"]["status"], job["problem"], final=True)
    return job


def verify_webhook(body: bytes, headers: Mapping[str, str], *secrets: str, tolerance: float = 300) -> Document:
    """Checks the signature of the exact bytes of a webhook, and returns its event with its `id`."""
    keys = [base64.b64decode(secret[6:], validate=True) for secret in secrets if secret.startswith("whsec_")]
    if not keys or not all(keys):
        raise ValueError("a secret is whsec_ and base64")
    given = {name.lower(): value for name, value in headers.items()}
    id, at, signatures = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not id or not re.fullmatch("[0-9]{1,12}", at) or abs(time.time() - int(at)) > tolerance:
        raise WebhookError("webhook-id is missing, or webhook-timestamp is too far from now")
    message = f"{id}.{at}.".encode() + body
    want = [b"v1," + base64.b64encode(hmac.digest(key, message, "sha256")) for key in keys]
    if not any(hmac.compare_digest(one.encode(), w) for one in signatures.split()[:16] for w in want):
        raise WebhookError("no signature in webhook-signature is of a secret")
    return {**json.loads(body), "id": id}
