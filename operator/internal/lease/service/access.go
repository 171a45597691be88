package service

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/holdfast-io/holdfast/operator/internal/lease/server"
	"github.com/holdfast-io/holdfast/operator/internal/lease/tokenreview"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// AccessOptions say who may call.
type AccessOptions struct {
	// TokenReview says where to ask whose the callers' bearer tokens are; nil: they are not looked at. It needs TLS with a
	// CA, by which the replicas know one another; other callers then need a certificate or a token.
	TokenReview *tokenreview.Config
	// AllowedIdentities are those that may call, each exact or up to a * at its end; none: all that are authenticated, or without
	// TLS simply all.
	AllowedIdentities []string
}

func (o *AccessOptions) validate(tls leasetls.Files) error {
	var errs []error
	if (o.TokenReview != nil || len(o.AllowedIdentities) > 0) && tls.CA == "" {
		errs = append(errs, errors.New("--token-review and --allowed-identities need --tls-client-ca, by which the replicas know one another"))
	}
	if o.TokenReview != nil && o.TokenReview.Audience == "" {
		errs = append(errs, errors.New("--token-audience is empty; tokens must be issued for an audience"))
	}
	if slices.Contains(o.AllowedIdentities, "") {
		errs = append(errs, fmt.Errorf("--allowed-identities is %q; no entry may be empty", o.AllowedIdentities))
	}
	return errors.Join(errs...)
}

func (o *AccessOptions) access() server.Access {
	access := server.Access{Allowed: o.AllowedIdentities}
	if o.TokenReview != nil {
		access.Review = tokenreview.New(*o.TokenReview, time.Now).Review
	}
	return access
}

func (o *AccessOptions) credentials(tls leasetls.Files) credentials.TransportCredentials {
	if o.TokenReview != nil {
		return leasetls.ServerCredentialsOrToken(tls)
	}
	return leasetls.ServerCredentials(tls)
}
