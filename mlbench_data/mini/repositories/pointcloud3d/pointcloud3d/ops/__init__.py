"""Operations on single clouds."""
