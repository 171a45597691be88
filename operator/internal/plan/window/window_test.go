package window_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/plan/window"
)

func at(text string) time.Time {
	out, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		panic(err)
	}
	return out
}

func TestOpen(t *testing.T) {
	const monday, sunday = "2026-03-02", "2026-03-01"
	for _, test := range []struct {
		name  string
		days  []string
		start string
		hours int
		now   time.Time
		open  bool
		wait  time.Duration
	}{
		{"before it", nil, "02:00", 1, at(monday + " 01:15"), false, 45 * time.Minute},
		{"at its first instant", nil, "02:00", 1, at(monday + " 02:00"), true, 0},
		{"at its last minute", nil, "02:00", 1, at(monday + " 02:59"), true, 0},
		{"closed at its end", nil, "02:00", 1, at(monday + " 03:00"), false, 23 * time.Hour},
		{"over midnight", nil, "23:00", 2, at(monday + " 00:30"), true, 0},
		{"over midnight, into a day that is not its own", []string{"Sun"}, "23:00", 2, at(monday + " 00:30"), true, 0},
		{"a week ahead", []string{"Sun"}, "02:00", 1, at(sunday + " 03:00"), false, 167 * time.Hour},
		{"the next of several days", []string{"Wed", "Sat"}, "00:00", 24, at(monday + " 12:00"), false, 36 * time.Hour},
		{"all the time", nil, "00:00", 24, at(monday + " 23:59"), true, 0},
		{"in another time zone", nil, "02:00", 1, at(monday + " 02:30").In(time.FixedZone("east", 5*3600)), true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, err := window.Parse(test.days, test.start, time.Duration(test.hours)*time.Hour)
			require.NoError(t, err)
			open, wait := w.Open(test.now)
			require.Equal(t, test.open, open)
			require.Equal(t, test.wait, wait)
		})
	}
}

func TestTheZeroWindowIsNeverOpen(t *testing.T) {
	open, wait := window.Window{}.Open(at("2026-03-01 00:00"))
	require.False(t, open)
	require.Zero(t, wait)
}

func TestParseRefuses(t *testing.T) {
	_, err := window.Parse(nil, "25:00", time.Hour)
	require.ErrorContains(t, err, `start is "25:00"`)
	_, err = window.Parse([]string{"Monday"}, "02:00", time.Hour)
	require.ErrorContains(t, err, `days has "Monday"`)
}

// Whoever waits as long as he is told finds it open, and not before.
func TestTheWaitEndsWhenItOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := window.Window{
			Start:  time.Duration(rapid.IntRange(0, 24*60-1).Draw(t, "start")) * time.Minute,
			Length: time.Duration(rapid.IntRange(1, 24*60).Draw(t, "length")) * time.Minute,
		}
		for _, d := range rapid.SliceOfNDistinct(rapid.IntRange(0, 6), 0, 7, rapid.ID).Draw(t, "days") {
			w.Days = append(w.Days, time.Weekday(d))
		}
		now := at("2026-03-01 00:00").Add(time.Duration(rapid.IntRange(0, 14*24*3600).Draw(t, "now")) * time.Second)
		open, wait := w.Open(now)
		if open {
			return
		}
		if wait <= 0 || wait > 7*24*time.Hour {
			t.Fatalf("a wait of %s", wait)
		}
		if then, _ := w.Open(now.Add(wait)); !then {
			t.Fatal("it is not open after the wait")
		}
		if before, _ := w.Open(now.Add(wait - time.Nanosecond)); before {
			t.Fatal("it was open before")
		}
	})
}
