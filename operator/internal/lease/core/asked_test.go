package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAskedNews(t *testing.T) {
	known := Asked{Reason: "maintenance", RequestedBy: "ops", By: Instant(time.Minute)}
	for what, c := range map[string]struct {
		change func(*Asked)
		news   bool
	}{
		"the same":                    {func(*Asked) {}, false},
		"its deadline told later":     {func(a *Asked) { a.By = a.By.Add(askedSlack) }, false},
		"its deadline told exactly":   {func(a *Asked) { a.By = a.By.Add(-askedSlack) }, false},
		"another reason":              {func(a *Asked) { a.Reason = "now" }, true},
		"asked by another":            {func(a *Asked) { a.RequestedBy = "root" }, true},
		"forced by now":               {func(a *Asked) { a.Force = true }, true},
		"an earlier deadline":         {func(a *Asked) { a.By = a.By.Add(-askedSlack - 1) }, true},
		"a later deadline":            {func(a *Asked) { a.By = a.By.Add(askedSlack + 1) }, true},
		"as much time as it likes":    {func(a *Asked) { a.By = 0 }, true},
		"forced, and told so exactly": {func(a *Asked) { a.Force, a.By = true, a.By.Add(-1) }, true},
	} {
		next := known
		c.change(&next)
		assert.Equal(t, c.news, known.News(next), what)
	}
	soon := Asked{By: 1}
	assert.True(t, soon.News(Asked{}), "a deadline and none")
	assert.True(t, Asked{}.News(soon), "none and a deadline")
}
