package console

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCurvesHaveTheSamplesOfTheLastHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Curves
		taken := 0.0
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			c.Run(ctx, func(context.Context) Sample { taken++; return Sample{1: new(taken)} })
		})
		time.Sleep(2*time.Hour + time.Second)
		end()
		running.Wait()
		all := c.all()
		if len(all) != 360 || taken != 721 {
			t.Fatalf("%v samples of %v", len(all), taken)
		}
		first, last := all[0], all[359]
		if *first[1] != 362 || *last[1] != 721 || *last[0]-*first[0] != 3590 || last[2] != nil {
			t.Errorf("from %v to %v", first, last)
		}
	})
}
