package fairdraw

// The names of the checks of a proof document. docs/draw.md says what each covers, and every
// verifier uses them.
const (
	CheckForm       = "form"
	CheckRules      = "rules"
	CheckCommitment = "commitment"
	CheckSoldList   = "sold-list"
	CheckCount      = "count"
	CheckRoot       = "root"
	CheckFreezeTime = "freeze-time"
	CheckFreezeHash = "freeze-hash"
	CheckChain      = "chain"
	CheckRound      = "round"
	CheckSignature  = "signature"
	CheckRandomness = "randomness"
	CheckWinners    = "winners"
	CheckTrust      = "trust"
)

// The names of the checks of what the user noted.
const (
	CheckNotedCommitment = "noted-commitment"
	CheckNotedFreezeHash = "noted-freeze-hash"
)

// The names of the checks of a proof of purchase, and of that of two proof documents.
const (
	CheckPurchaseForm     = "purchase-form"
	CheckPurchaseCampaign = "purchase-campaign"
	CheckInclusionPath    = "inclusion"
	CheckAgainst          = "against"
)
