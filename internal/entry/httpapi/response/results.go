package response

import (
	"encoding/json"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
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
}

func (a Job) send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderLocation, "/v1/jobs/"+a.ID.String())
	if a.Wait.Longest > 0 {
		c.Set("Preference-Applied", a.Wait.String())
	}
	if a.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(a.RetryAfter))
	}
	return SendJSON(c, a.Status, a.Replayed, a.Body)
}

// VisitRequestPurchaseResponse implements operations.RequestPurchaseResponseObject.
func (a Job) VisitRequestPurchaseResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCancelPurchaseResponse implements operations.CancelPurchaseResponseObject.
func (a Job) VisitCancelPurchaseResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCancelCampaignResponse implements operations.CancelCampaignResponseObject.
func (a Job) VisitCancelCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRequestDrawResponse implements operations.RequestDrawResponseObject.
func (a Job) VisitRequestDrawResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitGetJobResponse implements operations.GetJobResponseObject.
func (a Job) VisitGetJobResponse(c *fiber.Ctx) error { return a.send(c) }

// Command answers with the result of a command; for a repeated request, with
// the result of the first one.
type Command struct {
	Status   int
	Location string // of the created resource; empty if it has none
	Version  *int64 // of a wallet
	Body     []byte
	Replayed bool
}

func (a Command) send(c *fiber.Ctx) error {
	if a.Location != "" {
		c.Set(fiber.HeaderLocation, a.Location)
	}
	if a.Version != nil {
		c.Set(fiber.HeaderETag, VersionTag(*a.Version))
	}
	return SendJSON(c, a.Status, a.Replayed, a.Body)
}

// VisitCreateCampaignResponse implements operations.CreateCampaignResponseObject.
func (a Command) VisitCreateCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitPublishCampaignResponse implements operations.PublishCampaignResponseObject.
func (a Command) VisitPublishCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitPauseCampaignResponse implements operations.PauseCampaignResponseObject.
func (a Command) VisitPauseCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitResumeCampaignResponse implements operations.ResumeCampaignResponseObject.
func (a Command) VisitResumeCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCreateHoldResponse implements operations.CreateHoldResponseObject.
func (a Command) VisitCreateHoldResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitExtendHoldResponse implements operations.ExtendHoldResponseObject.
func (a Command) VisitExtendHoldResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRetryRefundResponse implements operations.RetryRefundResponseObject.
func (a Command) VisitRetryRefundResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitResolveRefundResponse implements operations.ResolveRefundResponseObject.
func (a Command) VisitResolveRefundResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRetryPaymentResponse implements operations.RetryPaymentResponseObject.
func (a Command) VisitRetryPaymentResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitResolvePaymentResponse implements operations.ResolvePaymentResponseObject.
func (a Command) VisitResolvePaymentResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitOpenWalletResponse implements operations.OpenWalletResponseObject.
func (a Command) VisitOpenWalletResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCreditWalletResponse implements operations.CreditWalletResponseObject.
func (a Command) VisitCreditWalletResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitDebitWalletResponse implements operations.DebitWalletResponseObject.
func (a Command) VisitDebitWalletResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitTransferResponse implements operations.TransferResponseObject.
func (a Command) VisitTransferResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitAuthorizeResponse implements operations.AuthorizeResponseObject.
func (a Command) VisitAuthorizeResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCaptureAuthorizationResponse implements operations.CaptureAuthorizationResponseObject.
func (a Command) VisitCaptureAuthorizationResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitVoidAuthorizationResponse implements operations.VoidAuthorizationResponseObject.
func (a Command) VisitVoidAuthorizationResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCreateWebhookEndpointResponse implements operations.CreateWebhookEndpointResponseObject.
func (a Command) VisitCreateWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitEnableWebhookEndpointResponse implements operations.EnableWebhookEndpointResponseObject.
func (a Command) VisitEnableWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitDisableWebhookEndpointResponse implements operations.DisableWebhookEndpointResponseObject.
func (a Command) VisitDisableWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRotateWebhookSecretResponse implements operations.RotateWebhookSecretResponseObject.
func (a Command) VisitRotateWebhookSecretResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitTestWebhookEndpointResponse implements operations.TestWebhookEndpointResponseObject.
func (a Command) VisitTestWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitReplayWebhookDeliveryResponse implements operations.ReplayWebhookDeliveryResponseObject.
func (a Command) VisitReplayWebhookDeliveryResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitReplayWebhookDeliveriesResponse implements operations.ReplayWebhookDeliveriesResponseObject.
func (a Command) VisitReplayWebhookDeliveriesResponse(c *fiber.Ctx) error { return a.send(c) }

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
	body, err := json.Marshal(document) //nolint:gosec // who has made the secret is shown it, once
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
