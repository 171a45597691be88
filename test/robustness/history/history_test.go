package history_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/test/robustness/history"
)

// ttl of the holds in these histories, in the unit of their times.
const ttl = 100

func granted(call, ret, token int64) history.Op {
	return history.Op{Kind: history.Granted, Call: call, Return: ret, Token: token, Weight: 1, Until: call + ttl}
}

func kept(call, ret, token int64) history.Op {
	return history.Op{Kind: history.Kept, Call: call, Return: ret, Token: token, Until: call + ttl}
}

func op(kind history.Kind, call, ret, token int64) history.Op {
	return history.Op{Kind: kind, Call: call, Return: ret, Token: token}
}

func seen(kind history.Kind, call, ret int64, tokens ...int64) history.Op {
	return history.Op{Kind: kind, Call: call, Return: ret, Seen: tokens}
}

func value(kind history.Kind, call, ret, token, v int64) history.Op {
	return history.Op{Kind: kind, Call: call, Return: ret, Token: token, Value: v}
}

func won(call, ret, token int64, holder, text string) history.Op {
	o := granted(call, ret, token)
	o.Holder, o.Text = holder, text
	return o
}

func transferred(call, ret, former, token int64, to string) history.Op {
	return history.Op{Kind: history.Transferred, Call: call, Return: ret, Former: former, Token: token, Weight: 1, Holder: to}
}

func proclaimed(call, ret, token int64, text string) history.Op {
	return history.Op{Kind: history.Proclaimed, Call: call, Return: ret, Token: token, Text: text}
}

func leads(call, ret, token int64, holder, text string) history.Op {
	o := seen(history.Viewed, call, ret, token)
	o.Holder, o.Text = holder, text
	return o
}

func check(capacity int32, voids map[int64]int64, ops ...history.Op) error {
	rec := history.NewRecorder(map[string]int32{"n": capacity})
	for token, from := range voids {
		rec.Void("n", token, from)
	}
	for i, o := range ops {
		o.Name, o.Client = "n", i
		rec.Add(o)
	}
	return history.Check(rec.History())
}

func TestExplainable(t *testing.T) {
	for name, ops := range map[string][]history.Op{
		"granted after a release":                               {granted(0, 10, 1), op(history.Released, 20, 30, 1), granted(31, 40, 2)},
		"granted after the TTL":                                 {granted(0, 10, 1), granted(20, 100, 2)},
		"granted after the TTL of a keepalive":                  {granted(0, 10, 1), kept(50, 60, 1), granted(70, 150, 2)},
		"a keepalive after the TTL that came first":             {granted(0, 10, 1), kept(150, 160, 1), granted(170, 250, 2)},
		"a release and a grant at one time":                     {granted(0, 10, 1), op(history.Released, 20, 90, 1), granted(21, 30, 2)},
		"a second release finds nothing":                        {granted(0, 10, 1), op(history.Released, 20, 30, 1), op(history.NotHeld, 31, 40, 1)},
		"a view of a hold, and of none after its TTL":           {granted(0, 10, 1), seen(history.Viewed, 11, 12, 1), seen(history.Viewed, 90, 100)},
		"a view of a grant whose answer was lost":               {granted(0, 10, 1), op(history.Released, 11, 12, 1), seen(history.Viewed, 20, 30, 2), granted(40, 50, 3)},
		"a refusal names the holder":                            {granted(0, 10, 1), seen(history.Refused, 20, 30, 1)},
		"a refusal while the hold changes":                      {granted(0, 10, 1), op(history.Released, 20, 90, 1), granted(30, 80, 2), seen(history.Refused, 30, 40, 1), seen(history.Refused, 40, 80, 2)},
		"a hold that lapsed is seen until its end is committed": {granted(0, 10, 1), op(history.Lapsed, 100, 101, 1), seen(history.Viewed, 102, 103, 1), granted(110, 120, 2)},
		"the register": {
			granted(0, 10, 1), value(history.Read, 11, 12, 1, 0), value(history.Wrote, 13, 14, 1, 1),
			granted(90, 110, 2), value(history.Read, 111, 112, 2, 1), value(history.Fenced, 113, 114, 1, 0), value(history.Wrote, 115, 116, 2, 2),
		},
		"a leader, its value, and another value": {
			won(0, 10, 1, "a", "v"), leads(11, 12, 1, "a", "v"), proclaimed(20, 40, 1, "w"), leads(21, 39, 1, "a", "v"), leads(22, 30, 1, "a", "w"), leads(41, 42, 1, "a", "w"),
		},
		"a leader whose victory was seen before it heard of it": {won(0, 30, 1, "a", "v"), leads(10, 20, 1, "a", "v")},
		"a transfer, and the next leader hears of it later": {
			won(0, 10, 1, "a", "v"), transferred(20, 30, 1, 2, "b"), won(5, 50, 2, "b", "w"), leads(31, 40, 2, "b", "w"),
		},
		"a transfer to one whose answer was lost": {
			won(0, 10, 1, "a", "v"), transferred(20, 30, 1, 2, "b"), leads(31, 40, 2, "b", "w"), leads(41, 42, 2, "b", "w"), won(50, 150, 3, "c", "x"),
		},
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, check(1, map[int64]int64{1: voidOf(ops)}, ops...)) })
	}
	t.Run("a proclamation of unknown outcome", func(t *testing.T) {
		for _, settled := range []bool{false, true} {
			rec := history.NewRecorder(nil)
			rec.Open("n", 1)
			if settled {
				rec.Settled("n", 1)
			}
			for i, o := range []history.Op{won(0, 10, 1, "a", "v"), leads(20, 30, 1, "a", "w"), leads(31, 40, 1, "a", "w")} {
				o.Name, o.Client = "n", i
				rec.Add(o)
			}
			if err := history.Check(rec.History()); settled {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
			}
		}
	})
	t.Run("granted after a release of unknown outcome", func(t *testing.T) {
		require.NoError(t, check(1, map[int64]int64{1: 20}, granted(0, 10, 1), granted(11, 25, 2)))
	})
	t.Run("three holds of three permits", func(t *testing.T) {
		require.NoError(t, check(3, nil, granted(0, 10, 1), granted(0, 10, 2), granted(0, 10, 3), op(history.Released, 20, 30, 2), granted(31, 40, 4)))
	})
}

// voidOf is when the first transfer was sent, from when on nothing is promised to the one who leads.
func voidOf(ops []history.Op) int64 {
	for _, o := range ops {
		if o.Kind == history.Transferred {
			return o.Call
		}
	}
	return math.MaxInt64
}

func TestViolations(t *testing.T) {
	for name, ops := range map[string][]history.Op{
		"two holders":                              {granted(0, 10, 1), granted(20, 30, 2)},
		"granted before the TTL of a keepalive":    {granted(0, 10, 1), kept(50, 60, 1), granted(70, 149, 2)},
		"a keepalive after the next grant":         {granted(0, 10, 1), granted(20, 100, 2), kept(101, 102, 1)},
		"a check after the next grant":             {granted(0, 10, 1), granted(20, 100, 2), op(history.Current, 101, 102, 1)},
		"a token that does not rise":               {granted(0, 10, 2), op(history.Released, 11, 12, 2), granted(20, 30, 1)},
		"one token granted twice":                  {granted(0, 10, 1), op(history.Released, 11, 12, 1), granted(20, 30, 1)},
		"lapsed before the TTL":                    {granted(0, 10, 1), op(history.Lapsed, 20, 99, 1)},
		"lost before the TTL":                      {granted(0, 10, 1), op(history.NotHeld, 20, 99, 1)},
		"a late release ends somebody else's hold": {granted(0, 10, 1), granted(20, 110, 2), op(history.Released, 120, 130, 1)},
		"a stale free":                             {granted(0, 10, 1), seen(history.Viewed, 20, 30)},
		"a stale view of an ended hold":            {granted(0, 10, 1), op(history.Released, 11, 12, 1), seen(history.Viewed, 20, 30, 1)},
		"a refusal by a hold that is over":         {granted(0, 10, 1), op(history.Released, 11, 12, 1), seen(history.Refused, 20, 30, 1)},
		"a lost grant within another's TTL":        {granted(0, 10, 1), seen(history.Viewed, 20, 30, 2)},
		"a lost grant with an old token":           {granted(0, 10, 2), op(history.Released, 11, 12, 2), seen(history.Viewed, 20, 30, 1)},
		"a stale write": {
			granted(0, 10, 1), granted(20, 110, 2), value(history.Read, 111, 112, 2, 0), value(history.Wrote, 113, 114, 1, 1),
		},
		"a lost update": {
			granted(0, 10, 1), value(history.Read, 11, 12, 1, 0), value(history.Wrote, 13, 14, 1, 1), value(history.Wrote, 15, 16, 1, 1),
		},
		"refused by the register without reason": {granted(0, 10, 1), value(history.Fenced, 11, 12, 1, 0)},
		"two leaders":                            {won(0, 10, 1, "a", "v"), won(20, 30, 2, "b", "w")},
		"a leader with somebody else's name":     {won(0, 10, 1, "a", "v"), leads(11, 12, 1, "b", "v")},
		"a value that came too early":            {won(0, 10, 1, "a", "v"), leads(11, 12, 1, "a", "w"), proclaimed(20, 30, 1, "w")},
		"a value that is out of date":            {won(0, 10, 1, "a", "v"), proclaimed(11, 12, 1, "w"), leads(20, 30, 1, "a", "v")},
		"a value that comes back":                {won(0, 10, 1, "a", "v"), proclaimed(11, 50, 1, "w"), leads(12, 20, 1, "a", "w"), leads(21, 30, 1, "a", "v")},
		"a former leader proclaims":              {won(0, 10, 1, "a", "v"), won(20, 110, 2, "b", "w"), proclaimed(111, 120, 1, "x")},
		"a transfer from one who does not lead":  {won(0, 10, 1, "a", "v"), op(history.Released, 11, 12, 1), transferred(20, 30, 1, 2, "b")},
		"a transfer after which the former leads": {
			won(0, 10, 1, "a", "v"), transferred(20, 30, 1, 2, "b"), won(5, 50, 2, "b", "w"), leads(31, 40, 1, "a", "v"),
		},
		"a transfer to one who heard before that it leads": {won(0, 10, 1, "a", "v"), won(5, 15, 2, "b", "w"), transferred(20, 30, 1, 2, "b")},
		"a transfer to one who asked after that":           {won(0, 10, 1, "a", "v"), transferred(20, 30, 1, 2, "b"), won(40, 50, 2, "b", "w")},
		"a transfer that somebody else got":                {won(0, 10, 1, "a", "v"), transferred(20, 30, 1, 2, "b"), won(5, 50, 2, "c", "w")},
		"nobody leads after a transfer":                    {won(0, 10, 1, "a", "v"), transferred(20, 30, 1, 2, "b"), won(5, 50, 2, "b", "w"), seen(history.Viewed, 51, 52)},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(1, map[int64]int64{1: voidOf(ops)}, ops...)
			var violation *history.ViolationError
			require.ErrorAs(t, err, &violation)
			assert.False(t, violation.Undecided)
			assert.NotEmpty(t, violation.After)
			dir := t.TempDir()
			rec := history.NewRecorder(nil)
			for _, o := range ops {
				o.Name = "n"
				rec.Add(o)
			}
			require.NoError(t, history.Save(rec.History(), dir))
			assert.FileExists(t, dir+"/n.html")
		})
	}
	t.Run("granted before a release of unknown outcome was sent", func(t *testing.T) {
		require.Error(t, check(1, map[int64]int64{1: 30}, granted(0, 10, 1), granted(11, 25, 2)))
	})
	t.Run("four holds of three permits", func(t *testing.T) {
		require.Error(t, check(3, nil, granted(0, 10, 1), granted(0, 10, 2), granted(0, 10, 3), granted(20, 40, 4)))
	})
}

// A long history of a correct service is explained quickly, and one operation that was tampered with is found in it.
func TestALongHistory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var ops []history.Op
	token, free := int64(0), int64(0)
	for range 2000 {
		now := free + rng.Int64N(5)
		token++
		at := now + rng.Int64N(10) // when it takes effect
		ops = append(ops, granted(now, at+rng.Int64N(10), token))
		for range rng.IntN(4) {
			at += rng.Int64N(10)
			ops = append(ops, kept(at-rng.Int64N(5), at+rng.Int64N(5), token))
		}
		at += 20
		ops = append(ops, op(history.Released, at-5, at+rng.Int64N(20), token))
		free = at
	}
	require.NoError(t, check(1, nil, ops...))
	late := ops[len(ops)/2]
	late.Kind, late.Call, late.Return = history.Current, free+100, free+110
	require.Error(t, check(1, nil, append(ops, late)...))
}

// What clients in another process do is recorded as if they were in this one, also when they are killed halfway through a word.
func TestARemoteHistory(t *testing.T) {
	var wire bytes.Buffer
	remote := history.NewRemote(&wire)
	remote.Add(history.Op{Name: "n", Kind: history.Granted, Return: 10, Token: 1, Weight: 1, Until: ttl})
	remote.Void("n", 1, 20)
	remote.Unknown()
	remote.Void("n", 3, 20)
	remote.Valid("n", 3)
	remote.Open("n", 4)
	remote.Open("n", 4)
	remote.Settled("n", 4)
	require.NoError(t, remote.Err())
	whole := wire.Len()
	remote.Add(history.Op{Name: "n", Kind: history.Granted, Call: 30, Return: 40, Token: 2, Weight: 1})
	wire.Truncate(whole + 10)
	rec := history.NewRecorder(nil)
	require.NoError(t, rec.Receive(&wire))
	h := rec.History()
	assert.Len(t, h.Ops, 1)
	assert.Equal(t, map[int64]int64{1: 20}, h.Voids["n"])
	assert.Equal(t, 1, h.Unknown)
	assert.Equal(t, map[int64]int{4: 1}, h.Open["n"])
}

func TestRegisters(t *testing.T) {
	rec := history.NewRecorder(nil)
	registers := history.NewRegisters(rec)
	server := httptest.NewServer(registers)
	defer server.Close()
	for _, g := range []history.Guarded{registers, history.RemoteRegisters{URL: server.URL}} {
		ok, err := history.Increment(g, 1, "n", 2, func() {})
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = history.Increment(g, 1, "n", 1, func() {})
		require.NoError(t, err)
		assert.False(t, ok, "a smaller token is refused")
	}
	require.NoError(t, history.Check(rec.History()))
	ok, err := registers.Write(1, "n", 3, 2)
	require.NoError(t, err)
	assert.True(t, ok)
	require.Error(t, history.Check(rec.History()), "an update was lost")
}
