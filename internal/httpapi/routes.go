package httpapi

import (
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/apikey"
)

// route is one operation of the contract and who may call it.
type route struct {
	method string
	path   string
	roles  []apikey.Role
	handle func(c *fiber.Ctx, who apikey.Key) error
}

// routes lists every authenticated operation. Nothing else decides on roles.
func (s *Server) routes() []route {
	operator := []apikey.Role{apikey.Operator}
	apps := []apikey.Role{apikey.App, apikey.Operator}
	return []route{
		{http.MethodPost, "/v1/campaigns", operator, s.createCampaign},
		{http.MethodGet, "/v1/campaigns", apps, s.listCampaigns},
		{http.MethodGet, "/v1/campaigns/:campaign", apps, s.getCampaign},
		{http.MethodPatch, "/v1/campaigns/:campaign", operator, s.patchCampaign},
		{http.MethodPost, "/v1/campaigns/:campaign/publish", operator, s.publishCampaign},
		{http.MethodPost, "/v1/campaigns/:campaign/pause", operator, s.pauseCampaign},
		{http.MethodPost, "/v1/campaigns/:campaign/resume", operator, s.resumeCampaign},
		{http.MethodPost, "/v1/campaigns/:campaign/draw", operator, s.requestDraw},
		{http.MethodGet, "/v1/campaigns/:campaign/draw", apps, s.getDraw},
		{http.MethodGet, "/v1/campaigns/:campaign/positions", apps, s.listPositions},
		{http.MethodGet, "/v1/campaigns/:campaign/positions/:layer/:column", apps, s.getPosition},
		{http.MethodPost, "/v1/campaigns/:campaign/purchases", apps, s.requestPurchase},
		{http.MethodGet, "/v1/purchases/:purchase", apps, s.getPurchase},
		{http.MethodGet, "/v1/users/:user/purchases", apps, s.listPurchases},
		{http.MethodGet, "/v1/jobs/:job", apps, s.getJob},
	}
}

// mount registers the routes behind authentication.
func (s *Server) mount(app *fiber.App) {
	for _, r := range s.routes() {
		app.Add(r.method, r.path, func(c *fiber.Ctx) error {
			who, err := s.authenticate(c)
			if err != nil {
				return err
			}
			if !slices.Contains(r.roles, who.Role) {
				return errForbidden(who.Role)
			}
			return r.handle(c, who)
		})
	}
}
