package tokenreview

// cache remembers a number of answers; the oldest makes place for a new one. It is not safe for concurrent use.
type cache struct {
	answers map[key]answer
	// order has the keys in the order in which they came, as a ring that begins at next. Some may not be in answers any more.
	order []key
	next  int
	most  int
}

func newCache(most int) cache { return cache{answers: map[key]answer{}, most: most} }

func (c *cache) put(id key, a answer) {
	if _, ok := c.answers[id]; !ok {
		if len(c.order) < c.most {
			c.order = append(c.order, id)
		} else {
			delete(c.answers, c.order[c.next])
			c.order[c.next] = id
			c.next = (c.next + 1) % c.most
		}
	}
	c.answers[id] = a
}
