package platform

import (
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/components/render"
)

// Unit is what changes its owner as a whole: the platform (operator, CRDs, development etcd, the spaces of teams that keep
// their tenants by themselves), or one tenant.
type Unit string

// PlatformUnit is everything that is no tenant's.
const PlatformUnit Unit = "the platform"

const tenantUnit = "tenant "

// TenantUnit is the unit of a tenant.
func TenantUnit(name string) Unit { return Unit(tenantUnit + name) }

// Tenant is the name of the unit's tenant; empty for the platform.
func (u Unit) Tenant() string {
	name, ours := strings.CutPrefix(string(u), tenantUnit)
	if !ours {
		return ""
	}
	return name
}

// Units are all units, the platform first.
func (c *Config) Units() []Unit {
	units := []Unit{PlatformUnit}
	for i := range c.Tenants {
		units = append(units, TenantUnit(c.Tenants[i].Name))
	}
	return units
}

// Owner is who owns the unit's objects; empty for a unit that there is not.
func (c *Config) Owner(unit Unit) string {
	if unit == PlatformUnit {
		return c.Ownership
	}
	for i := range c.Tenants {
		if TenantUnit(c.Tenants[i].Name) == unit {
			return c.Tenants[i].Ownership
		}
	}
	return ""
}

// Pinned reports whether the unit is a tenant that names its owner itself, and so stays when the platform's changes.
func (c *Config) Pinned(unit Unit) bool {
	for i := range c.Tenants {
		if TenantUnit(c.Tenants[i].Name) == unit {
			return c.Tenants[i].pinned
		}
	}
	return false
}

// Folders are the folders of the unit's rendered manifests, that of the CRDs first.
func (c *Config) Folders(unit Unit) []string {
	if unit == PlatformUnit {
		folders := []string{render.CRDFolder, c.Namespace}
		if c.DevEtcd != nil {
			folders = append(folders, c.DevEtcd.Namespace)
		}
		if c.ReleaseGuard != nil {
			folders = append(folders, c.ReleaseGuard.Namespaces...)
		}
		return append(folders, c.spaceFolders()...)
	}
	for i := range c.Tenants {
		if TenantUnit(c.Tenants[i].Name) == unit {
			return []string{c.Tenants[i].Namespace}
		}
	}
	return nil
}

// OwnedByPulumi is a copy of the configuration in which Pulumi owns everything. What it registers is what is rendered.
func (c *Config) OwnedByPulumi() *Config {
	all := *c
	all.Ownership = OwnershipPulumi
	all.Tenants = slices.Clone(c.Tenants)
	for i := range all.Tenants {
		all.Tenants[i].Ownership = OwnershipPulumi
	}
	return &all
}
