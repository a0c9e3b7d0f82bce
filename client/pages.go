package client

import (
	"errors"
	"fmt"
	"iter"
)

// pages iterates over the elements of a list, page after page.
func pages[T any, C comparable](first C, load func(C) ([]T, C, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var last C
		for cursor := first; ; {
			page, next, err := load(cursor)
			if err != nil {
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			switch next {
			case last:
				return
			case cursor:
				yield(none, fmt.Errorf("client: %w", &malformedError{errors.New("the next page is the same page")}))
				return
			}
			cursor = next
		}
	}
}
