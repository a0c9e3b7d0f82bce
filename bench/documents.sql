-- The schema of the documents (position purchase locking, section 8), word for
-- word, with its foreign keys. They name a table of users without showing it.

CREATE TABLE users (
  user_id UUID PRIMARY KEY DEFAULT gen_random_uuid()
);

CREATE TABLE campaigns (
  campaign_id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  name VARCHAR(255) NOT NULL,
  base_length INTEGER NOT NULL CHECK (base_length BETWEEN 3 AND 50),
  positions_total INTEGER NOT NULL,
  positions_sold INTEGER NOT NULL DEFAULT 0,
  purchase_limit INTEGER, -- NULL means unlimited
  status VARCHAR(20) NOT NULL CHECK (status IN ('draft', 'published', 'active', 'drawn', 'completed')),
  created_at TIMESTAMP NOT NULL DEFAULT NOW(),
  drawn_at TIMESTAMP,

  CONSTRAINT positions_sold_not_exceed_total CHECK (positions_sold <= positions_total)
);

CREATE INDEX idx_campaigns_status ON campaigns(status);

CREATE TABLE positions (
  position_id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  campaign_id UUID NOT NULL REFERENCES campaigns(campaign_id),
  layer_number INTEGER NOT NULL,
  row_number INTEGER NOT NULL,
  col_number INTEGER NOT NULL,
  price INTEGER NOT NULL CHECK (price >= 100),
  status VARCHAR(20) NOT NULL CHECK (status IN ('available', 'reserved', 'sold', 'expired')),
  user_id UUID REFERENCES users(user_id),
  reserved_at TIMESTAMP,
  sold_at TIMESTAMP,

  UNIQUE(campaign_id, row_number, col_number),

  CONSTRAINT position_user_consistency CHECK (
    (status = 'available' AND user_id IS NULL) OR
    (status IN ('reserved', 'sold') AND user_id IS NOT NULL)
  )
);

CREATE INDEX idx_positions_allocation ON positions(campaign_id, layer_number, status)
  WHERE status = 'available';

CREATE INDEX idx_positions_user ON positions(user_id) WHERE user_id IS NOT NULL;

CREATE TABLE purchases (
  purchase_id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  user_id UUID NOT NULL REFERENCES users(user_id),
  campaign_id UUID NOT NULL REFERENCES campaigns(campaign_id),
  position_id UUID NOT NULL REFERENCES positions(position_id),
  price INTEGER NOT NULL,
  status VARCHAR(20) NOT NULL CHECK (status IN ('pending', 'completed', 'failed', 'refunded')),
  payment_intent_id VARCHAR(255),
  request_id VARCHAR(255) NOT NULL, -- Idempotency key
  created_at TIMESTAMP NOT NULL DEFAULT NOW(),
  completed_at TIMESTAMP,

  UNIQUE(request_id)
);

CREATE INDEX idx_purchases_user_campaign ON purchases(user_id, campaign_id)
  WHERE status IN ('pending', 'completed');

CREATE INDEX idx_purchases_request_id ON purchases(request_id);

CREATE TABLE payment_transactions (
  transaction_id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  purchase_id UUID NOT NULL REFERENCES purchases(purchase_id),
  stripe_payment_intent_id VARCHAR(255) NOT NULL,
  amount INTEGER NOT NULL,
  status VARCHAR(20) NOT NULL,
  payment_method VARCHAR(50),
  created_at TIMESTAMP NOT NULL DEFAULT NOW(),
  webhook_received_at TIMESTAMP
);

CREATE INDEX idx_payment_transactions_stripe_id ON payment_transactions(stripe_payment_intent_id);
