package core

import "time"

// askedSlack is by how much deadlines may differ that are one and the same. A deadline is told as the time left, and the telling takes time.
const askedSlack = 500 * time.Millisecond

// Asked is a revocation as a holder knows it.
type Asked struct {
	// Reason and RequestedBy are as in Revocation.
	Reason, RequestedBy string
	// Force says that the hold ends then.
	Force bool
	// By is when the holder's time is up. 0: when it chooses to.
	By Instant
}

// News says whether another revocation is more than what is known already, told once more.
func (a Asked) News(other Asked) bool {
	if (a.By == 0) != (other.By == 0) || a.By.Sub(other.By).Abs() > askedSlack {
		return true
	}
	a.By = other.By
	return a != other
}
