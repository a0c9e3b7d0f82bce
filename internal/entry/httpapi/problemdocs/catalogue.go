package problemdocs

import "triprize/internal/domain/fault"

// explanations has the manual's text for every code: Happened, Retry, Remedy.
// Commands in a step must work as written.
var explanations = map[fault.Code]Explanation{
	fault.InvalidRequest: {
		"Something in the request is missing, unknown, of the wrong type or out of bounds, so it can never succeed as it is. Nothing was changed. " +
			"`errors` names the fields at fault: `pointer` is a JSON pointer into the body (`/selection/quantity`) or the name of a query parameter (`?limit`), " +
			"`detail` says what is allowed. Without `errors`, the `detail` of the problem says what is wrong with the request as a whole.",
		retryChanged,
		steps("Correct each field that `errors` names.",
			"Look for misspelt names: an unknown field is refused, not ignored.",
			"Send the body as one JSON value in UTF-8, with every name once, and no body at all where `/docs` shows none.",
			"Send the corrected request with a fresh `Idempotency-Key`."),
	},
	fault.KeyMissing: {
		"A POST that changes something needs an `Idempotency-Key` header, so that a retry after a lost answer cannot do the same thing twice. " +
			"This request has none. Nothing was done.",
		"Yes, once it has a key.",
		steps("Make one key for each thing you want done, for example a UUID: one for a purchase, not one for every attempt at it.",
			"Store the key before you send the request, and send the same one with every retry.",
			"With curl: `KEY=$(uuidgen)` once, then `-H \"Idempotency-Key: $KEY\"` each time."),
	},
	fault.KeyInvalid: {
		"An `Idempotency-Key` has 1 to 255 printable ASCII characters, bare or in double quotes. This one is empty, longer, or has something else in it. " +
			"Nothing was done.",
		retryChanged,
		steps("Use a UUID, such as `Idempotency-Key: 0198c9a4-7d52-7c1e-9a44-5b0f2f6d8e31`.",
			"To derive keys from names of your own, send a hash of them in hexadecimal: it is short, and always ASCII."),
	},
	fault.Unauthenticated: {
		"The request has no credentials, or none that are valid: an API key that is unknown or revoked, or a token that has expired or is meant for " +
			"another service. The answer does not say which, so that nobody can guess keys. Nothing was done.",
		retryRepaired,
		steps("Send the whole API key, as it was printed when it was created: `Authorization: Bearer tp_…`. The `WWW-Authenticate` header of the answer says what is expected.",
			"On the pages for operators, sign in with any user name and an operator's key as the password.",
			"If the key is lost or revoked, ask an operator to create another: `triprize key create --role app --client shop-1`. "+
				"Keep the name of the client: idempotency keys and jobs belong to it."),
	},
	fault.Forbidden: {
		"The credentials are valid, but their role does not include this operation. Nothing was done.",
		"No, not with these credentials.",
		steps("Look the operation up in `/docs`: it names the roles that may call it.",
			"Use a key with one of those roles. Campaigns are created, changed, published, paused and resumed by an `operator`; an `app` buys for its users.",
			"If you have no such key, ask an operator to create one: `triprize key create --role operator --client back-office`."),
	},
	fault.NotFound: {
		"There is nothing at this path, or no resource with this id, or it belongs to somebody else: the answer is the same for a resource that you may not see.",
		retryChanged,
		steps("Compare method and path with `/docs`; every path of the API begins with `/v1`.",
			"Use ids exactly as an answer gave them, in `id` or `Location`: 36 characters, with the hyphens.",
			"Read a job with a key of the client that requested it, or as an operator. Jobs are deleted some time after they are final; "+
				"a purchase is kept longer than its job: `GET /v1/users/{user}/purchases`."),
	},
	fault.MethodNotAllowed: {
		"The path exists, but not with this method. Nothing was done.",
		retryChanged,
		steps("Read the `Allow` header of the answer: it lists the methods this path has.",
			"Make sure that no redirect on the way turns a POST into a GET, as one from http to https may."),
	},
	fault.BodyTooLarge: {
		"The body is larger than this operation accepts: 1 MiB at most. Nothing was done.",
		retryChanged,
		steps("Check whether something got into the body by mistake; hardly any request needs more than a few kilobytes.",
			"In a large campaign, list equal prizes once, with a `count`."),
	},
	fault.UnsupportedMediaType: {
		"The body was sent as something other than JSON, or without saying what it is. Nothing was done.",
		retryRepaired,
		steps("Send `Content-Type: application/json`.",
			"With curl: `-H \"Content-Type: application/json\"`. Without it, `-d` sends a form."),
	},
	fault.LengthRequired: {
		"The request has a `Transfer-Encoding`, such as `chunked`. Here only `Content-Length` says how long a body is, so that a proxy and this server always agree on where a request ends. Nothing was done.",
		retryRepaired,
		steps("Send `Content-Length`, as nearly every HTTP client does by itself when it knows the body before it sends it.",
			"With curl: take out `-H \"Transfer-Encoding: chunked\"`, and use `-d` or `--data-binary` instead of `-T -`.",
			"In Node or Python: give the body as a string or as bytes, not as a stream or generator.",
			"If it is a proxy in front that sends chunks, let it buffer requests (nginx: `proxy_request_buffering on`)."),
	},
	fault.RequestTimeout: {
		"The request did not arrive in full within the time this server waits for one: 10 seconds, unless its operator has set another limit. Nothing was done.",
		"Yes, with the same `Idempotency-Key`, on a new connection.",
		steps("Send the request again, with the same key.",
			"If it keeps happening, make sure that `Content-Length` is the length of the body that follows: the server waits for that many bytes.",
			"Find out what is slow between you and the server: a proxy that holds back the body, or a network that loses packets."),
	},
	fault.HeadersTooLarge: {
		"The request line and the header fields together are larger than this server accepts. Nothing was done.",
		retryChanged,
		steps("Send no cookies: this API reads none, and they are the usual reason.",
			"Check what proxies and tracing libraries add on the way, such as `baggage`.",
			"Send one `Authorization` header, and query parameters only where `/docs` shows them."),
	},
	fault.CampaignNotActive: {
		"The campaign is not on sale: it is still a draft, it is being drawn, it is drawn, or it is cancelled. `detail` says which. No position was sold.",
		"Only if it is still `pending`: once it is published, with a fresh `Idempotency-Key`.",
		steps("Read `state` in `GET /v1/campaigns/{id}`.",
			"If it is `pending`, an operator publishes it with `POST /v1/campaigns/{id}/publish`.",
			"If it is `drawing`, `completed` or `cancelled`, stop selling: that is final.",
			"If you have already collected the buyer's money, give it back."),
	},
	fault.CampaignPaused: {
		"An operator has paused the sale, and may resume it at any time. No position was sold.",
		retryFreshKey,
		steps("Tell the buyer that the sale is interrupted.",
			"Look at `paused` in `GET /v1/campaigns/{id}` from time to time; when it is `false`, ask again with a fresh key.",
			"If you have already collected the buyer's money and do not want to wait, give it back."),
	},
	fault.SaleNotOpen: {
		"The sale of this campaign has not begun or is over. The server's clock decides. No position was sold.",
		retryFreshKey,
		steps("Read `sale_starts_at` and `sale_ends_at` in `GET /v1/campaigns/{id}`.",
			"If the sale has yet to begin, ask again after `sale_starts_at`, with a fresh key.",
			"If it is over, stop selling. Only an operator can reopen it, and only without `draws_at`: `PATCH /v1/campaigns/{id}` with a later `sale_ends_at`."),
	},
	fault.SoldOut: {
		"Every position is sold, of the layer you asked for or of the whole campaign; `detail` says which. The purchase got nothing.",
		retryFinal,
		steps("If one layer is sold out, choose another, or leave out `selection.layer` to take any; use a fresh key.",
			"If the campaign is sold out, stop selling. The draw starts by itself: `GET /v1/campaigns/{id}/draw`.",
			"If you have already collected the buyer's money, give it back."),
	},
	fault.NoneAvailable: {
		"Fewer positions are free than the purchase asks for; the others are sold, or held or reserved by buyers who have not paid yet. " +
			"A purchase gets all its positions or none: this one got none.",
		retryFreshKey,
		steps("Read `positions.available` in `GET /v1/campaigns/{id}`, for the campaign and for each layer.",
			"Ask for a smaller `selection.quantity`, for another layer, or for any layer, with a fresh key.",
			"Or wait: positions that are not paid in time become free again. Ask after a few seconds, then less and less often, each time with a fresh key.",
			"If you give up and have already collected the buyer's money, give it back."),
	},
	fault.PositionTaken: {
		"A position that was chosen is held, reserved or sold; `errors` names each of these, and `detail` lists them. A request gets all its " +
			"positions or none: this one got none.",
		"Not for these positions, unless a hold of them ends; then with a fresh `Idempotency-Key`.",
		steps("Read the board again, `GET /v1/campaigns/{id}/positions`, and show the buyer what is free.",
			"Choose others, or leave the choice to the server: `selection.quantity` instead of `selection.positions`.",
			"If `about` is there, it is the user's own hold that has them: buy it, `{\"selection\": {\"hold_id\": …}}`, or release it with `DELETE /v1/holds/{id}`.",
			"If you have already collected the buyer's money, give it back."),
	},
	fault.HoldExpired: {
		"The hold is over: its time has passed, by the server's clock, or it was released. Its positions are free, or somebody else has them by now. Nothing was changed, and nothing was bought.",
		retryFinal,
		steps("Read `state` and `expires_at` in `GET /v1/holds/{id}`.",
			"Hold the positions again, or buy them at once with `selection.positions`, with a fresh key; they may be taken.",
			"Show buyers how much time is left, and extend the hold before it ends: `POST /v1/holds/{id}/extend`.",
			"If you have already collected the buyer's money, give it back."),
	},
	fault.HoldLimitExceeded: {
		"Holds are limited, so that users do not block positions that they never buy. There are limits on how many holds and positions one user has at a time, " +
			"how much of a campaign is held at a time, how often a hold is extended, that no hold outlasts a sale whose end is its draw, for how long a user keeps a position in all its holds of it, and how soon it may hold a position again that it gave back. `detail` says which limit it was, " +
			"`retry_at`, if it is there, when the user may hold the positions again, and `errors` which positions these are. Nothing was held.",
		"Later, when a hold has ended or the time has passed, with a fresh `Idempotency-Key`.",
		steps("Release what the user does not want any more: `DELETE /v1/holds/{id}`.",
			"Ask for fewer positions.",
			"Or buy without a hold: `selection.positions` or `selection.quantity`."),
	},
	fault.PurchaseLimitExceeded: {
		"The campaign limits how many positions one user may have, and this purchase would pass the limit; `detail` has the numbers. " +
			"Positions the user holds, or has reserved and not paid yet, count as well. No position was sold.",
		"Not with this quantity, unless the limit is raised or a reservation of the user expires.",
		steps("Ask for no more than the user has left, with a fresh `Idempotency-Key`. The limit is `purchase_limit` in `GET /v1/campaigns/{id}`.",
			"An operator may raise it while the campaign is active: `PATCH /v1/campaigns/{id}` with `{\"purchase_limit\": 5}`.",
			"If you have already collected the buyer's money, give it back."),
	},
	fault.InsufficientFunds: {
		"The wallet has less money available than this needs. Available is its balance minus what authorizations hold; `detail` has both numbers. " +
			"Expired authorizations were released first. No money was moved.",
		retryFreshKey,
		steps("Read `available` in `GET /v1/wallets/{id}`.",
			"Ask for less; or credit the wallet with `POST /v1/wallets/{id}/credit`; then send the request again with a fresh key.",
			"If authorizations hold the missing money, void those that are no longer needed, or wait until they expire.",
			"If this is the problem of a purchase, it got no positions."),
	},
	fault.NotSoldOut: {
		"A campaign is drawn when every position is sold and paid, or when its sale has ended, if its rules allow that (`draws_at` in `GET /v1/campaigns/{id}`). This one has positions left, and its time has not come; `detail` says how many are sold. Nothing was drawn.",
		"There is no need: the draw starts by itself.",
		steps("Watch `positions` in `GET /v1/campaigns/{id}`; when `sold` equals `total`, the draw begins.",
			"With `draws_at` it begins then at the latest, or when the last open card payment has ended, soon after.",
			"Read the result at `GET /v1/campaigns/{id}/draw`.",
			"To request the draw nevertheless, do it after that, with a fresh `Idempotency-Key`."),
	},
	fault.StateConflict: {
		"The resource is in a state that does not allow this: publishing a campaign twice, say, or changing the price of one that is on sale, " +
			"or cancelling a purchase twice, or when every position is sold. `detail` says which it is. Nothing was changed.",
		"No, unless the state changes; then with a fresh `Idempotency-Key`.",
		steps("Read `state` in `GET /v1/campaigns/{id}`. If it is what you wanted, you are done: an earlier request did it.",
			"While `pending`, a campaign can be changed in every way, and published.",
			"While `active`, it can be paused and resumed; its name may change, its `purchase_limit` grow, its `sale_ends_at` move to later, but not with `draws_at`: then the end is a part of the rules.",
			"Afterwards, only its name may change.",
			"While `pending` or `active`, a campaign can be cancelled as a whole. That is final.",
			"A refund can be tried again or resolved by hand when the provider has refused it; one that is `listed`, when your app has made it.",
			"A purchase can be cancelled while its campaign is `active`, until `policies.cancellation_until` if there is such a time; an operator may later."),
	},
	fault.VersionMismatch: {
		"The request names in `If-Match` the version of the wallet that it expects, and the wallet has another version by now: another request has moved money. " +
			"`detail` has both versions. No money was moved by this request.",
		"Only after you have read the wallet again, with a fresh `Idempotency-Key`: the old one gets this refusal again.",
		steps("Read the wallet again: `GET /v1/wallets/{id}`.",
			"Decide on what it has now, and send the request with its `version` in `If-Match`, such as `If-Match: \"8\"`.",
			"Leave `If-Match` out where the version does not matter: a wallet never falls below zero with or without it."),
	},
	fault.KeyReused: {
		"Your client has used this `Idempotency-Key` before, with another method, path or body. An answer to the earlier request would be wrong here, " +
			"so this one was refused. Nothing was done; the earlier request is not affected.",
		"Not with this key.",
		steps("If you want something new, send it with a fresh key.",
			"If this was meant as a retry, send the earlier request again as it was: method, path and JSON must be equal. Spaces and the order of names do not matter.",
			"Do not count keys up from 1 at every start: they are remembered for a day at least, those of purchases and cancellations for 30 days. Random UUIDs do not collide."),
	},
	fault.RateLimited: {
		"This user or this client has sent more requests than it may in this time, or the client has as many event streams open as it may. " +
			"This request was refused before anything was done.",
		retrySameKey,
		steps("Wait as many seconds as `Retry-After` says, then send the request again, with the same key.",
			"Read the `RateLimit` headers of your answers, and slow down before nothing is left.",
			"If many buyers share one `user_id`, give each their own: requests that change something are counted by user.",
			"Close event streams that nobody watches, and let one stream of a campaign serve all who look at it."),
	},
	fault.Unavailable: {
		"The server cannot answer at the moment: its database is away, or it is shutting down. Whether the request was carried out is unknown.",
		retrySameKey,
		steps("Send exactly the same request again, with the same key. If it was carried out after all, you get the answer you missed, with `Idempotent-Replayed: true`.",
			"Go on until you get another answer; double the pause each time, up to 30 seconds, and vary it a little.",
			"Never change the key to get past this: the first request may have been carried out, and a fresh key would do it again.",
			"`GET /readyz` shows an operator what is missing."),
	},
	fault.Overloaded: {
		"More requests are waiting than the server can promise to serve in time, or it has as many event streams open as it may. " +
			"It refused this request; treat its outcome as unknown. A purchase by card is also refused while cards wait for longer than a reservation lasts; wallets and `external` are not affected by that.",
		retrySameKey,
		steps("Send exactly the same request again, with the same key; a retry never does a thing twice.",
			"Double the pause each time, up to 30 seconds, and vary it a little, so that clients do not all come back at once.",
			"Send fewer requests at the same time. If this lasts, the operator needs more API processes or a faster database."),
	},
	fault.PaymentDeclined: {
		"The buyer's bank, or the payment provider, has declined the card. `decline_code` says why and `advice` what the buyer can do, both in the provider's words; " +
			"`detail` is a sentence for the buyer. Nothing was charged. The purchase has failed, and its positions are free again.",
		"Yes, as a new purchase, with a fresh `Idempotency-Key`.",
		steps("Show the buyer `detail`. Do not say more than that of a card that was reported as lost or stolen.",
			"With `insufficient_funds`, or the advice `try_again_later`: offer to try again, later or with another card.",
			"With the advice `confirm_card_data` (`expired_card`, `incorrect_cvc`): have the card entered again, which gives another payment method.",
			"With the advice `do_not_try_again`: ask for another card.",
			"To try on the sandbox how your app takes it, see the guide's page on test cards."),
	},
	fault.PaymentRefused: {
		"The payment provider refuses the payment as it was asked for: the payment method is unknown, used up or of another account, say, or the amount is too small. " +
			"No bank was asked. Nothing was charged. The purchase has failed, and its positions are free again.",
		"Not as it is: with another payment method, as a new purchase, with a fresh `Idempotency-Key`.",
		steps("Read what the provider says in `detail`.",
			"Make the payment method in the same account of the provider, and in the same mode (live or test), as this installation uses.",
			"Use a payment method once, or attach it to a customer of yours: a second purchase needs another one."),
	},
	fault.PaymentNotReceived: {
		"The payment provider could not say what became of the payment, so an operator has looked, and has found that nothing was paid. " +
			"The purchase has failed, and its positions are free again. If money comes after all, it is refunded.",
		"Yes, as a new purchase, with a fresh `Idempotency-Key`.",
		steps("Read who has looked and what was found in the `timeline` of `GET /v1/purchases/{id}`, under `payment-resolved`: the job has the `purchase_id`.",
			"If the buyer sees a charge on the card, have an operator compare both ledgers: `triprize audit payments`.",
			"If the buyer still wants positions, send a new purchase. It may get other ones."),
	},
	fault.PurchaseCancelled: {
		"The purchase was cancelled before it was paid: by somebody with `POST /v1/purchases/{id}/cancel`. Its positions are free again. If the money was taken meanwhile, it is refunded.",
		"As a new purchase, if the buyer still wants it, with a fresh `Idempotency-Key`.",
		steps("Read `cancellation` and `refund` in `GET /v1/purchases/{id}`: the job has the `purchase_id`.",
			"If the buyer wants positions after all, send a new purchase. It may get other ones."),
	},
	fault.PurchaseDisputed: {
		"The buyer has had the charge of this purchase disputed by its bank, so the money is in the bank's hands: it cannot be refunded, or it would be paid back twice. " +
			"The purchase is as it was.",
		"When the dispute is decided for you: with a fresh `Idempotency-Key`.",
		steps("Read `dispute` in `GET /v1/purchases/{id}`: its `status` says how far the bank is.",
			"Answer the dispute at the payment provider. If it is `won`, the purchase can be cancelled as before; if it is `lost`, the buyer has the money already.",
			"If the positions must be free before that, have an operator cancel the purchase: its refund then waits for the operator, with the dispute as the reason."),
	},
	fault.CardsNotAccepted: {
		"The purchase is to be paid by card, or a payment provider has called, and this installation has no account with one. Nothing was done.",
		"Not until an operator has set up the provider. The key of the request is unused.",
		steps("Pay with `external` or `wallet`.",
			"An operator sets `payments.stripe.key` and `payments.stripe.webhook_secret`, and restarts the processes.",
			"To try cards without an account, run `triprize dev`: it has a sandbox."),
	},
	fault.ReservationExpired: {
		"Positions were reserved for this purchase, and its payment did not arrive in time. The purchase has failed; its positions are free again, " +
			"and no longer count towards the user's limit.",
		"Yes, as a new purchase, with a fresh `Idempotency-Key`.",
		steps("If the buyer still wants positions, send a new purchase. It may get other positions than before.",
			"If the buyer has authenticated or paid too late, read `state` and `refund` in `GET /v1/purchases/{id}`: the campaign's `policies.late_payment` says whether late money gets other positions or goes back."),
	},
	fault.WalletExists: {
		"The owner has a wallet in this currency already: there is one for each. `about` is its id. No wallet was opened, and the first credit was not made.",
		"No: the same request gets the same answer, and with a fresh `Idempotency-Key`, too.",
		steps("Use the wallet in `about`: `GET /v1/wallets/{id}`.",
			"If you do not know who opened it, look at its `metadata`, and at its first events: `GET /v1/wallets/{id}/events?from_version=1`.",
			"If the first credit is still wanted, make it: `POST /v1/wallets/{id}/credit`."),
	},
	fault.InternalError: {
		"Something is broken on our side; the request may be perfectly good. The error is in the server's log. If this is the problem of a job, the job was tried " +
			"several times and given up, and had no effect. If it is the answer to a request, its outcome is unknown.",
		"A request: yes, with the same `Idempotency-Key`. A failed job: later, with a fresh one.",
		steps("Send a request again with the same key, a few times, with growing pauses: nothing is done twice.",
			"If it goes on, report the `request_id` (it is in the `X-Request-ID` header as well), or the id of the job.",
			"Send a new request for a failed job only when the cause is found: until then it is likely to fail again."),
	},
}
