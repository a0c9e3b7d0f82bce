package console

import "testing"

func TestCurvesHaveTheSamplesOfTheLastHour(t *testing.T) {
	t.Parallel()
	var c Curves
	for i := range 400 {
		c.add(Sample{1: new(float64(i))})
	}
	all := c.all()
	if len(all) != 360 || *all[0][1] != 40 || *all[359][1] != 399 || *all[0][0] == 0 || all[0][2] != nil {
		t.Errorf("%d samples, from %v to %v", len(all), all[0], all[len(all)-1])
	}
}
