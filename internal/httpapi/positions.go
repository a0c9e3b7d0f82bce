package httpapi

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/apikey"
	"triprize/internal/board"
	"triprize/internal/fault"
	"triprize/internal/triangle"
)

// positionDocument is one position of the board. Who has it is for operators.
type positionDocument struct {
	triangle.Position
	Price     int64       `json:"price"`
	State     board.State `json:"state"`
	UserID    *string     `json:"user_id,omitempty"`
	ExpiresAt *time.Time  `json:"expires_at,omitempty"`
}

func positionJSON(p board.Position, who apikey.Key) positionDocument {
	d := positionDocument{Position: p.Position, Price: p.Price, State: p.State}
	if who.Role == apikey.Operator {
		d.UserID, d.ExpiresAt = p.UserID, p.ExpiresAt
	}
	return d
}

func (s *Server) listPositions(c *fiber.Ctx, who apikey.Key) error {
	id, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	if err := s.known.require(ctx, id); err != nil {
		return err
	}
	all, err := board.All(ctx, s.db, id)
	if err != nil {
		return err
	}
	documents := make([]positionDocument, len(all))
	for i, p := range all {
		documents[i] = positionJSON(p, who)
	}
	return c.JSON(fiber.Map{"positions": documents})
}

func (s *Server) getPosition(c *fiber.Ctx, who apikey.Key) error {
	id, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	layer, layerErr := strconv.Atoi(c.Params("layer"))
	column, columnErr := strconv.Atoi(c.Params("column"))
	at := triangle.Position{Layer: layer, Column: column}
	if layerErr != nil || columnErr != nil || !at.In(triangle.MaxBaseLength) {
		return fault.New(fault.NotFound, "there is no such position")
	}
	ctx, cancel := s.context()
	defer cancel()
	p, err := board.Get(ctx, s.db, id, at)
	if err != nil {
		return err
	}
	return c.JSON(positionJSON(p, who))
}
