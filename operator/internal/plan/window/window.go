// Package window tells whether a weekly maintenance window is open. It is pure: the time is an argument. Times are UTC, so that
// no time zone has to be known, and no hour comes twice or never.
package window

import (
	"fmt"
	"slices"
	"time"
)

const day = 24 * time.Hour

// Window is open on some days of the week, from a time of the day on, for a while. The zero Window is never open.
type Window struct {
	// Days on which it opens; none: every day.
	Days []time.Weekday
	// Start is the time since midnight at which it opens, less than 24 hours.
	Start time.Duration
	// Length is how long it stays open, over midnight if need be; 24 hours at most.
	Length time.Duration
}

// Parse makes a window of the three-letter names of days ("Mon"), a time of the day ("02:30") and a length.
func Parse(days []string, start string, length time.Duration) (Window, error) {
	at, err := time.Parse("15:04", start)
	if err != nil {
		return Window{}, fmt.Errorf("start is %q; allowed is a time of the day in UTC, such as 02:30", start)
	}
	w := Window{Start: time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, Length: length}
	for _, name := range days {
		found := slices.IndexFunc([]time.Weekday{0, 1, 2, 3, 4, 5, 6}, func(d time.Weekday) bool { return d.String()[:3] == name })
		if found < 0 {
			return Window{}, fmt.Errorf("days has %q; allowed are Mon, Tue, Wed, Thu, Fri, Sat and Sun", name)
		}
		w.Days = append(w.Days, time.Weekday(found))
	}
	return w, nil
}

// Open tells whether it is open, and otherwise the time until it opens next.
func (w Window) Open(now time.Time) (open bool, wait time.Duration) {
	if w.Length <= 0 {
		return false, 0
	}
	now = now.UTC()
	midnight := now.Truncate(day) // of UTC: the zero time of Go is one
	// It may have been opened yesterday, and opens within the week that follows.
	for offset := -1; offset <= 7; offset++ {
		opens := midnight.Add(time.Duration(offset)*day + w.Start)
		if len(w.Days) > 0 && !slices.Contains(w.Days, opens.Weekday()) {
			continue
		}
		switch {
		case now.Before(opens):
			return false, opens.Sub(now)
		case now.Before(opens.Add(w.Length)):
			return true, 0
		}
	}
	return false, 0
}
