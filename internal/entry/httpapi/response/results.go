package response

import (
	"encoding/json"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/job"
)

// Job answers with a job that is already encoded, because the answer of a
// final job may come from Redis.
type Job struct {
	Status     int
	ID         uuid.UUID
	Body       []byte
	Wait       Wait // as it was granted
	RetryAfter int  // seconds; 0 for a final job
	Replayed   bool
	Problem    *job.Problem // of a job that has failed, unless it was replayed from Redis
}

// Send implements operations.Answer.
func (a Job) Send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderLocation, "/v1/jobs/"+a.ID.String())
	if a.Wait.Longest > 0 {
		c.Set("Preference-Applied", a.Wait.String())
	}
	if a.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(a.RetryAfter))
	}
	return SendJSON(c, a.Status, a.Replayed, a.Body)
}

// Command answers with the result of a command; for a repeated request, with
// the result of the first one.
type Command struct {
	Status   int
	Location string // of the created resource; empty if it has none
	Version  *int64 // of a wallet
	Body     []byte
	Replayed bool
}

// Send implements operations.Answer.
func (a Command) Send(c *fiber.Ctx) error {
	if a.Location != "" {
		c.Set(fiber.HeaderLocation, a.Location)
	}
	if a.Version != nil {
		c.Set(fiber.HeaderETag, VersionTag(*a.Version))
	}
	return SendJSON(c, a.Status, a.Replayed, a.Body)
}

// WithSecret adds a secret that was made just now to the answer, which is stored without.
func (a Command) WithSecret(secret string) (Command, error) {
	if secret == "" {
		return a, nil
	}
	var document contract.WebhookEndpoint
	if err := json.Unmarshal(a.Body, &document); err != nil {
		return Command{}, err
	}
	document.Secret = secret
	body, err := json.Marshal(document) //nolint:gosec // the maker of the secret is shown it, once
	a.Body = body
	return a, err
}

// VersionTag is the entity tag of a wallet: its version, for If-Match.
func VersionTag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// SendJSON answers with a document of JSON. Replayed: the answer of the first request with this key.
func SendJSON(c *fiber.Ctx, status int, replayed bool, body []byte) error {
	if replayed {
		c.Set("Idempotent-Replayed", "true")
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).Send(body)
}
