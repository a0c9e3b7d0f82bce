package httpapi

import (
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
)

// jobAnswer answers with a job that is already encoded, because the answer of a
// final job may come from Redis.
type jobAnswer struct {
	status     int
	id         uuid.UUID
	body       []byte
	wait       preferredWait // as it was granted
	retryAfter int           // seconds; 0 for a final job
	replayed   bool
}

func (a jobAnswer) send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderLocation, "/v1/jobs/"+a.id.String())
	if a.wait.longest > 0 {
		c.Set("Preference-Applied", a.wait.String())
	}
	if a.retryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(a.retryAfter))
	}
	return sendJSON(c, a.status, a.replayed, a.body)
}

// VisitRequestPurchaseResponse implements contract.RequestPurchaseResponseObject.
func (a jobAnswer) VisitRequestPurchaseResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCancelPurchaseResponse implements contract.CancelPurchaseResponseObject.
func (a jobAnswer) VisitCancelPurchaseResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCancelCampaignResponse implements contract.CancelCampaignResponseObject.
func (a jobAnswer) VisitCancelCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRequestDrawResponse implements contract.RequestDrawResponseObject.
func (a jobAnswer) VisitRequestDrawResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitGetJobResponse implements contract.GetJobResponseObject.
func (a jobAnswer) VisitGetJobResponse(c *fiber.Ctx) error { return a.send(c) }

// commandAnswer answers with the result of a command; for a repeated request, with
// the result of the first one.
type commandAnswer struct {
	status   int
	location string // of the created resource; empty if it has none
	version  *int64 // of a wallet
	body     []byte
	replayed bool
}

func (a commandAnswer) send(c *fiber.Ctx) error {
	if a.location != "" {
		c.Set(fiber.HeaderLocation, a.location)
	}
	if a.version != nil {
		c.Set(fiber.HeaderETag, versionTag(*a.version))
	}
	return sendJSON(c, a.status, a.replayed, a.body)
}

// VisitCreateCampaignResponse implements contract.CreateCampaignResponseObject.
func (a commandAnswer) VisitCreateCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitPublishCampaignResponse implements contract.PublishCampaignResponseObject.
func (a commandAnswer) VisitPublishCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitPauseCampaignResponse implements contract.PauseCampaignResponseObject.
func (a commandAnswer) VisitPauseCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitResumeCampaignResponse implements contract.ResumeCampaignResponseObject.
func (a commandAnswer) VisitResumeCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCreateHoldResponse implements contract.CreateHoldResponseObject.
func (a commandAnswer) VisitCreateHoldResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitExtendHoldResponse implements contract.ExtendHoldResponseObject.
func (a commandAnswer) VisitExtendHoldResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRetryRefundResponse implements contract.RetryRefundResponseObject.
func (a commandAnswer) VisitRetryRefundResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitResolveRefundResponse implements contract.ResolveRefundResponseObject.
func (a commandAnswer) VisitResolveRefundResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRetryPaymentResponse implements contract.RetryPaymentResponseObject.
func (a commandAnswer) VisitRetryPaymentResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitResolvePaymentResponse implements contract.ResolvePaymentResponseObject.
func (a commandAnswer) VisitResolvePaymentResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitOpenWalletResponse implements contract.OpenWalletResponseObject.
func (a commandAnswer) VisitOpenWalletResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCreditWalletResponse implements contract.CreditWalletResponseObject.
func (a commandAnswer) VisitCreditWalletResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitDebitWalletResponse implements contract.DebitWalletResponseObject.
func (a commandAnswer) VisitDebitWalletResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitTransferResponse implements contract.TransferResponseObject.
func (a commandAnswer) VisitTransferResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitAuthorizeResponse implements contract.AuthorizeResponseObject.
func (a commandAnswer) VisitAuthorizeResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitCaptureAuthorizationResponse implements contract.CaptureAuthorizationResponseObject.
func (a commandAnswer) VisitCaptureAuthorizationResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitVoidAuthorizationResponse implements contract.VoidAuthorizationResponseObject.
func (a commandAnswer) VisitVoidAuthorizationResponse(c *fiber.Ctx) error { return a.send(c) }

func sendJSON(c *fiber.Ctx, status int, replayed bool, body []byte) error {
	if replayed {
		c.Set("Idempotent-Replayed", "true")
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).Send(body)
}
