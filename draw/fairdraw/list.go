package fairdraw

import (
	"fmt"
	"io"
	"iter"

	"github.com/google/uuid"
)

// List is the list document without its list of sold positions: the frozen list, which is
// public before its round is due. Its canonical JSON, with the list as "sold", is the
// document. With the freeze record and the round, anybody computes the outcome from it.
type List struct {
	CampaignID uuid.UUID `json:"campaign_id"`
	Count      int       `json:"count"` // leaves under the root
	Root       Hash      `json:"root"`
}

// listMembers are the members of a list document in canonical order.
var listMembers = []string{"campaign_id", "count", "root", "sold"}

// WriteList writes the list document with its list of sold positions, in canonical form. It
// holds one line at a time. An error in the list ends the document where it is, as in
// [WriteProof]. That the parts fit together is not its business.
func WriteList(w io.Writer, l List, sold iter.Seq2[SoldLine, error]) error {
	err := l.checkValues()
	if err != nil {
		return fmt.Errorf("fairdraw.WriteList(%s): %w", l.CampaignID, err)
	}
	head, err := canonical(l)
	if err != nil {
		return fmt.Errorf("fairdraw.WriteList(%s): %w", l.CampaignID, err)
	}
	if err := writeAround(w, head, sold, []byte{'}'}); err != nil {
		return fmt.Errorf("fairdraw.WriteList(%s): %w", l.CampaignID, err)
	}
	return nil
}

// ReadList reads a list document and hands over its sold positions line by line. It takes
// exactly what WriteList writes: a *FormError says where a document is spelled in another
// way, or has not exactly its members. Errors of r and of each come back wrapped. That the
// parts fit together is for [List.Check].
func ReadList(r io.Reader, each func(SoldLine) error) (l List, err error) {
	s := newScanner(r)
	values := map[string]any{"campaign_id": &l.CampaignID, "count": &l.Count, "root": &l.Root}
	for i, name := range listMembers {
		if err = s.name(listMembers, i); err == nil {
			if name == "sold" {
				err = s.sold(each)
			} else {
				err = s.member(name, values[name])
			}
		}
		if err != nil {
			return List{}, fmt.Errorf("fairdraw.ReadList: %w", err)
		}
	}
	if err = s.end(); err == nil {
		err = l.checkValues()
	}
	if err != nil {
		return List{}, fmt.Errorf("fairdraw.ReadList: %w", err)
	}
	return l, nil
}

func (l List) checkValues() error {
	if l.Count < 0 || l.Count > MaxInteger {
		return malformed("count", "is %d, which is no integer from 0 to 2^53 − 1", l.Count)
	}
	return nil
}

// Check returns nil if the list is sorted and has no position twice, has count lines, and
// its root is the root of the document. Else it returns the name of the first check that
// fails (CheckSoldList, CheckCount, CheckRoot), and why it fails.
func (l List) Check(lines []SoldLine) (check string, err error) {
	var tree Tree
	for _, line := range lines {
		if err := tree.Append(line); err != nil {
			return CheckSoldList, err
		}
	}
	if tree.Count() != l.Count {
		return CheckCount, fmt.Errorf("the list has %d lines; its count is %d", tree.Count(), l.Count)
	}
	if root := tree.Root(); root != l.Root {
		return CheckRoot, fmt.Errorf("the list has the root %s, not %s", root, l.Root)
	}
	return "", nil
}
